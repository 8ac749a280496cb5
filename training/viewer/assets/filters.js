// The form above the table. Its choices are what the rows hold.
const CHOICES = [
  ["run", "Run", () => (COMPARING ? RUNS.map((run) => [String(run.index), visible(run.name)]) : [])],
  ["source", "Source", (rows) => distinct(rows, (row) => [row.source])],
  ["outcome", "Outcome", (rows) => distinct(rows, (row) => [row.outcome])],
  ["family", "Family", (rows) => distinct(rows, (row) => [row.family])],
  ["rejection", "Refused", (rows) => [["(any)", "any code"], ["(none)", "none"], ...distinct(rows, (row) => row.rejections)]],
];

const distinct = (rows, values) => [...new Set(rows.flatMap(values))].sort().map((value) => [value, visible(value)]);

function startFilters(changed) {
  const form = byId("filters");
  const range = (name, label) => el("span", {}, label, " ",
    el("input", { type: "number", step: "any", name: `${name}From`, "aria-label": `${label} at least`, placeholder: "from" }), " ",
    el("input", { type: "number", step: "any", name: `${name}To`, "aria-label": `${label} at most`, placeholder: "to" }));
  form.append(
    ...CHOICES.map(([name, label]) => el("label", { hidden: name === "run" && !COMPARING }, label, " ", el("select", { name }))),
    range("reward", "Reward"), range("step", "Step"),
    el("label", {}, "Task has ", el("input", { type: "search", name: "key", size: 12 })),
    ...(SOURCE.served ? [] : [el("label", {}, el("input", { type: "checkbox", name: "held" }), " only those held in full")]),
    el("button", { type: "reset" }, "Clear"));
  form.addEventListener("input", changed);
  form.addEventListener("reset", () => setTimeout(changed));  // the fields are cleared after this event
  form.addEventListener("submit", (event) => event.preventDefault());
  drawChoices();
}

function drawChoices() {
  const rows = RUNS.flatMap((run) => run.rows);
  for (const [name, , values] of CHOICES) {
    const field = byId("filters").elements[name], before = field.value;
    const options = values(rows);
    if (field.options.length === options.length + 1) continue;  // nothing new: an open list stays open
    field.replaceChildren(el("option", { value: "" }, "all"), ...options.map(([value, label]) => el("option", { value }, label)));
    field.value = options.some(([value]) => value === before) ? before : "";
  }
}

function wantedNow() {
  const fields = byId("filters").elements;
  const value = (name) => fields[name].value;
  return {
    run: value("run"), source: value("source"), outcome: value("outcome"), family: value("family"),
    rejection: value("rejection"), key: value("key"), held: !SOURCE.served && fields.held.checked,
    rewardFrom: value("rewardFrom"), rewardTo: value("rewardTo"), stepFrom: value("stepFrom"), stepTo: value("stepTo"),
  };
}
