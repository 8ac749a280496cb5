// What stands beside the curves: the log of events, held-out scores, and the shown rollouts by task family.
const MOST_EVENTS = 500;

function drawEvents() {
  const all = RUNS.flatMap((run) => run.curves.events.map((event) => ({ ...event, run })));
  const select = byId("event-kind"), kind = select.value;
  const kinds = [...new Set(all.map((event) => event.kind))].sort();
  select.replaceChildren(el("option", { value: "" }, "all"), ...kinds.map((name) => el("option", {}, name)));
  select.value = kinds.includes(kind) ? kind : "";
  const shown = all.filter((event) => !select.value || event.kind === select.value).sort((a, b) => b.step - a.step);
  const caption = shown.length > MOST_EVENTS ? `the last ${MOST_EVENTS} of ${shown.length} events` : `${shown.length} events, latest first`;
  byId("event-list").replaceChildren(table(caption, [...(COMPARING ? ["Run"] : []), "Step", "Kind", "Event"],
    shown.slice(0, MOST_EVENTS).map((event) =>
      [...(COMPARING ? [visible(event.run.name)] : []), event.step, event.kind, visible(event.text)])));
}

function drawScores() {
  const columns = RUNS.flatMap((run) => Object.entries(run.curves.scores).flatMap(([when, modes]) =>
    Object.entries(modes).map(([mode, slices]) =>
      ({ name: `${COMPARING ? visible(run.name) + " " : ""}${mode} ${when}`, slices }))));
  const slices = [...new Set(columns.flatMap((column) => Object.keys(column.slices)))];
  byId("scores").replaceChildren(...(columns.length ? [el("div", { class: "wide" },
    table("held-out success", ["Slice", ...columns.map((column) => column.name)],
      slices.map((slice) => [visible(slice.replaceAll("_", " ")), ...columns.map((column) => column.slices[slice] ?? "–")])))] : []));
}

function drawFamilies(rows) {
  const families = [...new Set(rows.map((row) => row.family))].sort();
  const heads = RUNS.flatMap((run) => ["rollouts", "success", "reward"].map((name) =>
    (COMPARING ? visible(run.name) + " " : "") + name));
  const sums = new Map();
  for (const row of rows) {
    const id = `${row.run} ${row.family}`;
    const sum = sums.get(id) || { rows: 0, success: 0, reward: 0, paid: 0 };
    sum.rows += 1;
    sum.success += row.success ? 1 : 0;
    if (row.reward !== null) { sum.reward += row.reward; sum.paid += 1; }
    sums.set(id, sum);
  }
  const cells = (sum) => (sum ? [sum.rows, sum.success / sum.rows, sum.paid ? sum.reward / sum.paid : "–"] : [0, "–", "–"]);
  byId("family-table").replaceChildren(el("div", { class: "wide" }, table("of the rows in the table", ["Family", ...heads],
    families.map((family) => [visible(family), ...RUNS.flatMap((run) => cells(sums.get(`${run.index} ${family}`)))]))));
}
