// Ties the parts together: the address behind # says what is shown; rows come in while the page is open.
const POLL_MS = 5000;
let opened = 0;  // counts openings, so that a slow one does not replace a later one

const addressOf = (row) => `#/${row.run}/${encodeURIComponent(row.file)}/${row.line}`;
const open = (row) => { location.hash = addressOf(row); };
const close = () => { location.hash = ""; };

function rowOf(hash) {
  const match = /^#\/(\d+)\/([^/]+)\/(\d+)$/.exec(hash);
  if (!match || !RUNS[match[1]]) return null;
  const file = decodeURIComponent(match[2]);
  return RUNS[match[1]].rows.find((row) => row.file === file && row.line === Number(match[3])) || null;
}

function refresh() {
  select(wantedNow());
  drawTable();
  drawFamilies(view.shown);
  if (byId("rollout").hidden) sayRows();
}

function sayRows() {
  const all = RUNS.reduce((sum, run) => sum + run.rows.length, 0);
  const order = view.sort ? `, sorted by ${view.sort.head.toLowerCase()}, ${view.down ? "descending" : "ascending"}` : "";
  say(`${view.shown.length} of ${all} rollouts${order}`);
}

async function route() {
  const row = rowOf(location.hash), turnOf = ++opened;
  if (row === null) {
    const back = !byId("rollout").hidden;
    byId("rollout").hidden = true;
    byId("overview").hidden = false;
    if (back) {
      refresh();
      moveCursor(view.cursor);
      byId("grid").focus();
      byId("scroller").scrollIntoView({ block: "nearest" });
    }
    return;
  }
  const place = view.shown.indexOf(row), partner = partnerOf(row);
  if (place >= 0) view.cursor = place;
  const pair = partner ? [row, partner].sort((a, b) => a.run - b.run) : [row];
  const rollouts = await Promise.all(pair.map(loadRollout));
  if (turnOf !== opened) return;
  const articles = pair.map((one, at) => rolloutArticle(one, rollouts[at]));
  byId("rollout").replaceChildren(controls(place), el("div", { class: pair.length > 1 ? "side two" : "side" }, ...articles));
  byId("overview").hidden = true;
  byId("rollout").hidden = false;
  window.scrollTo(0, 0);
  articles[pair.indexOf(row)].querySelector("h2").focus();
  say(`rollout ${place < 0 ? "outside the filter" : `${place + 1} of ${view.shown.length}`}: ${visible(row.outcome)}, reward ${number(row.reward)}${pairing(rollouts)}`);
}

// A key names a task within its seed only: under another seed it is another question.
function pairing(rollouts) {
  if (!COMPARING) return "";
  if (rollouts.length < 2) return "; the other run has no rollout of this task";
  const [first, second] = rollouts;
  return first && second && first.question !== second.question ? "; the same key, but another question in each run" : "";
}

function controls(place) {
  const step = (by) => ({ type: "button", disabled: !view.shown[place + by] || place < 0, onclick: () => open(view.shown[place + by]) });
  const shades = ["logprob", "advantage"].map((name) => el("label", {},
    el("input", { type: "radio", name: "shade", value: name, checked: shading.by === name, onchange: () => shadeBy(name) }), ` ${name}`));
  return el("div", { class: "controls" },
    el("button", { type: "button", onclick: close }, "Back to the table (Escape)"),
    el("button", { ...step(-1), id: "previous" }, "← Previous"), el("button", { ...step(1), id: "next" }, "Next →"),
    el("fieldset", { class: "controls" }, el("legend", {}, "Shade sampled tokens by"), ...shades,
      el("span", { class: "hint" }, shading.by === "logprob" ? `The stronger, the less likely; full from a logprob of −${UNLIKELY}.`
        : "Green above its group, red below; the same for every token of a rollout.")));
}

function shadeBy(name) {
  shading.by = name;
  route().then(() => byId("rollout").querySelector(`input[value="${name}"]`).focus(), fail);
}

function pageKey(event) {
  if (byId("rollout").hidden || event.altKey || event.ctrlKey || event.metaKey || event.defaultPrevented) return;
  if (event.key === "Escape") close();
  else if (event.target.matches("input, select, pre")) return;
  else if (event.key === "ArrowLeft") byId("previous").click();
  else if (event.key === "ArrowRight") byId("next").click();
}

async function loadNumbers() {
  await Promise.all(RUNS.map(loadCurves));
  drawCharts();
  drawEvents();
  drawScores();
}

async function poll() {
  try {
    if (!document.hidden) {
      const news = await Promise.all(RUNS.map((run) => loadRows(run, () => { drawChoices(); refresh(); })));
      if (news.some(Boolean)) await loadNumbers();
    }
    byId("error").hidden = true;
  } catch (error) {
    fail(error);
  }
  setTimeout(poll, POLL_MS);
}

async function start() {
  const names = RUNS.map((run) => visible(run.name));
  byId("runs").textContent = names.join(" beside ");
  document.title = `${names.join(" beside ")} – callwright`;
  startCharts();
  startFilters(refresh);
  startTable(open, refresh);
  byId("event-kind").addEventListener("change", drawEvents);
  for (const button of document.querySelectorAll("[data-jump]")) {
    button.addEventListener("click", () => {
      if (!byId("rollout").hidden) close();
      byId("overview").hidden = false;
      byId(button.dataset.jump).scrollIntoView();
      byId(button.dataset.jump).focus({ preventScroll: true });
    });
  }
  addEventListener("hashchange", () => route().catch(fail));
  addEventListener("keydown", pageKey);
  addEventListener("resize", () => drawRows(false));
  await Promise.all([loadNumbers(), ...RUNS.map((run) => loadRows(run, () => { drawChoices(); refresh(); }))]);
  await route();
  document.documentElement.dataset.ready = "true";
  if (SOURCE.served) setTimeout(poll, POLL_MS);
}

start().catch(fail);
