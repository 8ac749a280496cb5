// Where rows, curves and rollouts come from: this page itself, or the server that it came from.
const SOURCE = JSON.parse(byId("data").textContent);
const RUNS = SOURCE.runs.map((run, index) => ({ ...run, index, rows: [], generation: 0, read: 0, curves: null }));
const COMPARING = RUNS.length > 1;

async function fetchJson(path) {
  const reply = await fetch(path, { cache: "no-store" });
  const value = await reply.json().catch(() => ({}));
  if (!reply.ok) throw new Error(value.error || `the server answered ${reply.status}`);
  return value;
}

function asRow(run, values) {
  const row = { run: run.index };
  SOURCE.columns.forEach((name, place) => { row[name] = values[place]; });
  row.source = row.step === null ? row.file : "training";
  return row;
}

// Takes in the rows that are new; calls onRows after each batch. Resolves to whether anything came.
async function loadRows(run, onRows) {
  if (!SOURCE.served) {
    if (run.read) return false;
    run.rows = SOURCE.runs[run.index].rows.map((values) => asRow(run, values));
    run.read = run.rows.length;
    onRows();
    return true;
  }
  for (let any = false; ; ) {
    const batch = await fetchJson(`runs/${run.index}/rows/${run.generation}/${run.read}`);
    const anew = batch.generation !== run.generation;
    if (anew) run.rows = [];
    run.generation = batch.generation;
    for (const values of batch.rows) run.rows.push(asRow(run, values));
    run.read = run.rows.length;
    if (batch.rows.length || anew) { any = true; onRows(); }
    if (batch.complete) return any;
  }
}

async function loadCurves(run) {
  run.curves = SOURCE.served ? await fetchJson(`runs/${run.index}/curves`) : SOURCE.runs[run.index].curves;
}

// Whether the page can show a row in full.
const isHeld = (row) => SOURCE.served || `${row.file}/${row.line}` in SOURCE.runs[row.run].rollouts;

async function loadRollout(row) {
  if (SOURCE.served) return fetchJson(`runs/${row.run}/rollouts/${encodeURIComponent(row.file)}/${row.line}`);
  return isHeld(row) ? SOURCE.runs[row.run].rollouts[`${row.file}/${row.line}`] : null;
}

// The rollout of the other run that answers the same task: in the same file and of the same sample where it can be.
function partnerOf(row) {
  if (!COMPARING) return null;
  const same = RUNS[1 - row.run].rows.filter((other) => other.key === row.key);
  const closeness = (other) => 2 * (other.file === row.file) + (other.sample === row.sample) + 4 * isHeld(other);
  return same.reduce((best, other) => (best && closeness(best) >= closeness(other) ? best : other), null);
}
