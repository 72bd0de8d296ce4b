// How the page is changed. A node is touched only when what it says has changed: selections, focus
// and opened lists stay. What others have named enters as text only, never as markup.

export function byId(id) { return document.getElementById(id); }

export function make(tag, className, text) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  if (text !== undefined) node.textContent = text;
  return node;
}

export function renew(node, said, build) {
  const key = JSON.stringify(said);
  if (node.said === key) return;
  node.said = key;
  node.replaceChildren(...build());
}

export function show(node, text, sub = "") {
  renew(node, [text, sub], () => {
    const parts = text === null ? [unknown()] : [text];
    return sub ? [...parts, make("span", "sub", sub)] : parts;
  });
}

export function unknown() {
  const dash = make("span", "unknown", "\u2013");
  dash.title = "not known";
  dash.setAttribute("role", "img");
  dash.setAttribute("aria-label", "not known");
  return dash;
}

// ------------------------------------------------------------ drawings
// They are cloned from templates of the page, so that no script needs the name of SVG.

export function drawing(name) {
  const svg = byId("drawings").content.querySelector(`[data-drawing="${name}"]`);
  return svg.cloneNode(true);
}

const SHAPES = new Map(
  [...byId("shapes").content.children].map(shape => [shape.dataset.shape, shape]));

export function shape(state) {
  return (SHAPES.get(state) ?? SHAPES.get("other")).cloneNode(true);
}

export function stateOf(value, text = value) {
  const node = make("span", "state");
  node.dataset.state = value;
  node.append(shape(value), make("span", "", text));
  return node;
}

// A bar from `from` to `to`, shares of its trough. What it shows stands beside it in words.
export function bar(to, from = 0, kind = "") {
  const trough = make("span", "bar"), filled = make("span", kind);
  const low = Math.min(1, Math.max(0, Math.min(from, to)));
  const high = Math.min(1, Math.max(0, Math.max(from, to)));
  filled.style.marginLeft = `${low * 100}%`;
  filled.style.width = `${(high - low) * 100}%`;
  trough.setAttribute("aria-hidden", "true");
  trough.append(filled);
  return trough;
}

export function showGauge(cell, ratio, text, sub = "") {
  if (ratio === null) return show(cell, text, sub);
  renew(cell, [ratio, text, sub], () => {
    const gauge = make("span", "gauge");
    gauge.append(bar(ratio), make("span", "", text));
    return sub ? [gauge, make("span", "sub", sub)] : [gauge];
  });
}

// ------------------------------------------------------------ lists and tables

// Makes the children of `parent` after the first `fixed` ones match `items`, by key.
export function keep(parent, fixed, items, keyOf, build, update) {
  const former = parent.kept ?? new Map();
  parent.kept = new Map(items.map((item, i) => {
    const key = keyOf(item, i);
    return [key, former.get(key) ?? build()];
  }));
  const wanted = [...parent.kept.values()];
  for (const node of former.values()) if (!wanted.includes(node)) node.remove();
  wanted.forEach((node, i) => {
    const there = parent.children[fixed + i] ?? null;
    if (there !== node) parent.insertBefore(node, there);
    update(node, items[i], i);
  });
}

// The roles are written out because a table laid out as sheets loses its own in some browsers.
export function row(table) {
  const tr = make("tr");
  tr.setAttribute("role", "row");
  for (const head of table.tHead.rows[0].cells) {
    const isHead = head.dataset.head !== undefined;
    const cell = make(isHead ? "th" : "td", head.className);
    if (isHead) cell.scope = "row";
    cell.setAttribute("role", isHead ? "rowheader" : "cell");
    cell.dataset.label = head.textContent;
    tr.append(cell);
  }
  return tr;
}

function emptyCell() {
  const cell = make("td");
  cell.setAttribute("role", "cell");
  return cell;
}

export function wideRow(table, className, {scope = "", skip = 0} = {}) {
  const tr = make("tr", className), cell = make(scope ? "th" : "td");
  tr.setAttribute("role", "row");
  for (let i = 0; i < skip; i++) tr.append(emptyCell());
  if (scope) cell.scope = scope;
  cell.setAttribute("role", scope ? "rowheader" : "cell");
  cell.colSpan = table.tHead.rows[0].cells.length - skip;
  tr.append(cell);
  return tr;
}

export function body(...rows) {
  const tbody = make("tbody");
  tbody.setAttribute("role", "rowgroup");
  tbody.append(...rows);
  return tbody;
}

// A name and what it says, in a list of facts: [name, text, sub, spark].
export function showFacts(dl, facts) {
  keep(dl, 0, facts.filter(([, text]) => text !== null), ([name]) => name, () => {
    const group = make("div");
    group.append(make("dt"), make("dd"));
    return group;
  }, (group, [name, text, sub, line]) => {
    const [dt, dd] = group.children;
    if (dt.textContent !== name) dt.textContent = name;
    if (line) line(dd, text, sub);
    else show(dd, text, sub ?? "");
  });
}
