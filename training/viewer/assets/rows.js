// Which rows are shown, and in which order. No drawing here.
const COLUMNS = [
  ...(COMPARING ? [{ name: "run", head: "Run", width: "8rem", text: (row) => visible(RUNS[row.run].name) }] : []),
  { name: "source", head: "Source", width: "9rem" },
  { name: "step", head: "Step", width: "4rem", number: true },
  { name: "key", head: "Task", width: "14rem" },
  { name: "family", head: "Family", width: "8.5rem" },
  { name: "outcome", head: "Outcome", width: "7rem" },
  { name: "reward", head: "Reward", width: "5.5rem", number: true },
  { name: "advantage", head: "Advantage", width: "6.5rem", number: true },
  { name: "tokens", head: "Tokens", width: "5.5rem", number: true },
  { name: "calls", head: "Calls", width: "4.5rem", number: true },
  { name: "rejections", head: "Refused", width: "8rem", text: (row) => visible(row.rejections.join(", ")) },
  { name: "seconds", head: "Seconds", width: "5.5rem", number: true },
];

const view = { shown: [], sort: null, down: false, cursor: 0 };

function matches(row, wanted) {
  return (wanted.run === "" || row.run === Number(wanted.run))
    && (wanted.source === "" || row.source === wanted.source)
    && (wanted.outcome === "" || row.outcome === wanted.outcome)
    && (wanted.family === "" || row.family === wanted.family)
    && refused(row.rejections, wanted.rejection)
    && between(row.step, wanted.stepFrom, wanted.stepTo)
    && between(row.reward, wanted.rewardFrom, wanted.rewardTo)
    && (wanted.key === "" || row.key.includes(wanted.key))
    && (!wanted.held || isHeld(row));
}

function refused(codes, wanted) {
  if (wanted === "") return true;
  if (wanted === "(any)") return codes.length > 0;
  return wanted === "(none)" ? codes.length === 0 : codes.includes(wanted);
}

function between(value, from, to) {
  if (from === "" && to === "") return true;
  return value !== null && (from === "" || value >= Number(from)) && (to === "" || value <= Number(to));
}

// Rows without a value come last, whichever way; equal ones stay in the order in which they were read.
function compare(column, down) {
  const sign = down ? -1 : 1;
  const value = column.name === "rejections" ? (row) => row.rejections.join() || null : (row) => row[column.name];
  return (a, b) => {
    const left = value(a), right = value(b);
    if (left === null || right === null) return (left === null) - (right === null);
    return left < right ? -sign : left > right ? sign : 0;
  };
}

// Forms the shown rows anew; the cursor stays on its row where that is still there.
function select(wanted) {
  const current = view.shown[view.cursor];
  view.shown = RUNS.flatMap((run) => run.rows.filter((row) => matches(row, wanted)));
  if (view.sort) view.shown.sort(compare(view.sort, view.down));
  view.cursor = Math.max(0, current ? view.shown.indexOf(current) : 0);
}
