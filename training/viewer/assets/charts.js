// Curves: one small chart a metric, the runs over each other, smoothed by an exponential mean.
const FIRST_METRICS = ["reward", "success", "valid_call_rate", "zero_variance_share", "entropy", "loss",
  "tokens_per_rollout", "step_seconds"];
const BOX = { width: 360, height: 150, left: 46, right: 8, top: 8, bottom: 20 };
const chosenMetrics = new Set(FIRST_METRICS);

function smoothed(values, weight) {
  let mean = 0, share = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return mean / share;  // without the pull of the zero it began from
  });
}

function drawCharts() {
  const all = new Set(RUNS.flatMap((run) => Object.keys(run.curves.series)));
  const names = [...new Set([...FIRST_METRICS.filter((name) => all.has(name)), ...all])];
  const weight = Number(byId("smoothing").value);
  byId("smoothing-value").textContent = weight.toFixed(2);
  byId("metrics").replaceChildren(...names.map((name) => el("label", {},
    el("input", { type: "checkbox", value: name, checked: chosenMetrics.has(name) }), " ", visible(name))));
  const drawn = names.filter((name) => chosenMetrics.has(name));
  byId("charts").replaceChildren(...drawn.map((name) => chart(name, weight)));
  if (!names.length) byId("charts").replaceChildren(el("p", { class: "soft" }, "This folder has no metrics.jsonl."));
  byId("legend").replaceChildren(...(COMPARING ? RUNS.flatMap((run) =>
    [el("span", { class: `name-${run.index}` }, `${run.index ? "╌╌" : "──"} ${visible(run.name)}`), "   "]) : []));
}

function chart(name, weight) {
  const lines = RUNS.map((run) => {
    const raw = run.curves.series[name] || [];
    return { run, steps: run.curves.steps, raw, mean: smoothed(raw, weight) };
  });
  const known = lines.flatMap((line) => line.raw.filter((value) => value !== null));
  const steps = lines.flatMap((line) => (line.raw.length ? line.steps : []));
  const caption = el("figcaption", {}, el("strong", {}, visible(name)), " ");
  if (!known.length) return el("figure", {}, caption, "no numbers");
  const [low, high] = spread(known), [from, to] = spread(steps);
  const x = (step) => BOX.left + (step - from) / (to - from) * (BOX.width - BOX.left - BOX.right);
  const y = (value) => BOX.height - BOX.bottom - (value - low) / (high - low) * (BOX.height - BOX.top - BOX.bottom);
  const drawing = svg("svg", { viewBox: `0 0 ${BOX.width} ${BOX.height}`, role: "img" },
    svg("line", { class: "axis", x1: BOX.left, x2: BOX.width - BOX.right, y1: y(low), y2: y(low) }),
    svg("line", { class: "axis", x1: BOX.left, x2: BOX.left, y1: y(low), y2: y(high) }),
    svg("text", { x: BOX.left - 4, y: y(high) + 8, "text-anchor": "end" }, number(high, 3)),
    svg("text", { x: BOX.left - 4, y: y(low), "text-anchor": "end" }, number(low, 3)),
    svg("text", { x: BOX.left, y: BOX.height - 6 }, `step ${from}`),
    svg("text", { x: BOX.width - BOX.right, y: BOX.height - 6, "text-anchor": "end" }, String(to)),
    ...marks(x, y(low), y(high)),
    ...lines.flatMap((line) => [path(line, line.raw, "raw", x, y), path(line, line.mean, "mean", x, y)]));
  const ends = lines.filter((line) => line.raw.some((value) => value !== null)).map(inWords);
  drawing.setAttribute("aria-label", `${visible(name)}: ${ends.join("; ")}`);
  const value = el("span", {}, ends.join("; "));
  caption.append(value);
  const read = (event) => {
    const box = drawing.getBoundingClientRect();
    const at = (event.clientX - box.left) / box.width * BOX.width;
    value.textContent = lines.map((line) => nearest(line, x, at)).filter(Boolean).join("; ");
  };
  drawing.addEventListener("pointermove", read);
  drawing.addEventListener("pointerleave", () => { value.textContent = ends.join("; "); });
  return el("figure", {}, caption, drawing);
}

function spread(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  return low === high ? [low - (low ? 0 : 1), high + 1] : [low, high];
}

const marks = (x, bottom, top) => RUNS.flatMap((run) => run.curves.events)
  .filter((event) => event.kind === "checkpoint")
  .map((event) => svg("line", { class: "checkpoint", x1: x(event.step), x2: x(event.step), y1: bottom, y2: top }));

function path(line, values, kind, x, y) {
  const points = values.flatMap((value, place) => (value === null ? [] : [`${x(line.steps[place]).toFixed(1)},${y(value).toFixed(1)}`]));
  return svg("polyline", { class: `${kind} run-${line.run.index}`, points: points.join(" ") });
}

function inWords(line) {
  const known = line.raw.filter((value) => value !== null);
  return (COMPARING ? visible(line.run.name) + " " : "") + `${number(known[0], 3)} → ${number(known.at(-1), 3)}`;
}

function nearest(line, x, at) {
  let best = -1;
  line.raw.forEach((value, place) => {
    if (value !== null && (best < 0 || Math.abs(x(line.steps[place]) - at) < Math.abs(x(line.steps[best]) - at))) best = place;
  });
  if (best < 0) return "";
  return `${COMPARING ? visible(line.run.name) + " " : ""}step ${line.steps[best]}: ${number(line.raw[best])} (smoothed ${number(line.mean[best])})`;
}

function startCharts() {
  byId("smoothing").addEventListener("input", drawCharts);
  byId("metrics").addEventListener("change", (event) => {
    if (event.target.checked) chosenMetrics.add(event.target.value);
    else chosenMetrics.delete(event.target.value);
    drawCharts();
    [...byId("metrics").querySelectorAll("input")].find((box) => box.value === event.target.value).focus();
  });
}
