// Elements made from data. Text only ever becomes a text node or an attribute's value: nothing here parses HTML.
const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const el = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);

const svg = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// What would not be seen, or would turn the direction of what follows, is written out.
const UNSEEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]/gu;
const visible = (text) =>
  String(text).replace(UNSEEN, (character) => "\\u{" + character.codePointAt(0).toString(16) + "}");

const number = (value, digits = 4) => {
  if (value === null || value === undefined) return "–";
  return typeof value === "number" ? String(Number(value.toPrecision(digits))) : visible(value);
};

const facts = (pairs) =>
  el("dl", { class: "facts" }, ...pairs.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));

function table(caption, heads, rows, attributes = {}) {
  return el("table", attributes, el("caption", { class: "soft" }, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...rows.map((cells) => el("tr", {}, ...cells.map((cell) =>
      el("td", typeof cell === "number" ? { class: "number" } : {}, typeof cell === "number" ? number(cell) : cell))))));
}

const say = (text) => { byId("status").textContent = text; };

function fail(error) {
  byId("error").textContent = visible(error.message || error);
  byId("error").hidden = false;
}
