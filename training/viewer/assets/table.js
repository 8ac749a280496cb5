// The table: only the rows in sight are elements. The table itself has the focus, and names its current row.
const ROW_HEIGHT = 28, MARGIN = 12;  // the height is the style sheet's --row-height
const drawn = { first: -1, last: -1, rows: null };

function startTable(open, sorted) {
  byId("grid").prepend(el("colgroup", {}, ...COLUMNS.map((column) => {
    const col = el("col");
    col.style.width = column.width;
    return col;
  })));
  byId("grid").setAttribute("aria-colcount", COLUMNS.length);
  byId("grid-head").append(...COLUMNS.map((column) => el("th",
    { scope: "col", class: column.number && "number", "data-column": column.name, "aria-sort": "none" },
    el("button", { type: "button", onclick: () => { sortBy(column); sorted(); moveCursor(0); } }, column.head))));
  byId("scroller").addEventListener("scroll", () => requestAnimationFrame(() => drawRows(false)), { passive: true });
  byId("grid-body").addEventListener("click", (event) => {
    const line = event.target.closest("tr[data-place]");
    if (!line) return;
    view.cursor = Number(line.dataset.place);
    open(view.shown[view.cursor]);
  });
  byId("grid").addEventListener("keydown", (event) => gridKey(event, open));
}

// Ascending, descending, then as it was read.
function sortBy(column) {
  if (view.sort !== column) [view.sort, view.down] = [column, false];
  else if (!view.down) view.down = true;
  else [view.sort, view.down] = [null, false];
  for (const head of byId("grid-head").children) {
    const own = view.sort && head.dataset.column === view.sort.name;
    head.setAttribute("aria-sort", own ? (view.down ? "descending" : "ascending") : "none");
  }
}

function drawTable() {
  byId("grid").setAttribute("aria-rowcount", view.shown.length + 1);
  drawRows(true);
}

function drawRows(anew) {
  const scroller = byId("scroller");
  const first = Math.max(0, Math.floor(scroller.scrollTop / ROW_HEIGHT) - MARGIN);
  const last = Math.min(view.shown.length, first + Math.ceil(scroller.clientHeight / ROW_HEIGHT) + 2 * MARGIN);
  if (!anew && first === drawn.first && last === drawn.last) return;
  [drawn.first, drawn.last] = [first, last];
  const lines = view.shown.slice(first, last).map((row, place) => line(row, first + place));
  byId("grid-body").replaceChildren(pad(first), ...lines, pad(view.shown.length - last));
  markCursor();
}

function pad(rows) {
  const line = el("tr", { class: "pad", role: "presentation", "aria-hidden": "true" }, el("td", { colspan: COLUMNS.length }));
  line.style.height = `${rows * ROW_HEIGHT}px`;
  line.hidden = rows === 0;
  return line;
}

function line(row, place) {
  return el("tr", { id: `row-${place}`, "data-place": place, "aria-rowindex": place + 2 },
    ...COLUMNS.map((column) => {
      const text = column.text ? column.text(row) : number(row[column.name]);
      return el("td", column.number ? { class: "number" } : { title: text }, text);
    }));
}

function markCursor() {
  for (const line of byId("grid-body").querySelectorAll("tr[data-place]")) {
    const own = Number(line.dataset.place) === view.cursor;
    line.classList.toggle("cursor", own);
    line.setAttribute("aria-selected", own);
  }
  const inSight = view.cursor >= drawn.first && view.cursor < drawn.last;
  if (inSight) byId("grid").setAttribute("aria-activedescendant", `row-${view.cursor}`);
  else byId("grid").removeAttribute("aria-activedescendant");
}

function moveCursor(place) {
  view.cursor = Math.max(0, Math.min(view.shown.length - 1, place));
  const scroller = byId("scroller"), head = byId("grid-head").offsetHeight;
  const top = view.cursor * ROW_HEIGHT;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  const room = scroller.clientHeight - head - ROW_HEIGHT;
  if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
  drawRows(false);
  markCursor();
}

function gridKey(event, open) {
  if (event.target !== byId("grid") || event.altKey || event.ctrlKey || event.metaKey) return;
  const page = Math.max(1, Math.floor(byId("scroller").clientHeight / ROW_HEIGHT) - 2);
  const to = { ArrowDown: view.cursor + 1, ArrowUp: view.cursor - 1, PageDown: view.cursor + page,
    PageUp: view.cursor - page, Home: 0, End: view.shown.length - 1 }[event.key];
  if (to !== undefined) moveCursor(to);
  else if (event.key === "Enter" && view.shown.length) open(view.shown[view.cursor]);
  else return;
  event.preventDefault();
}
