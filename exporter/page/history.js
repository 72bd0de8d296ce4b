// The last hour: asked for once, and then what is new each ten seconds; drawn as small lines.

import {list, number, record, total, word} from "./words.js";
import {drawing, make, renew} from "./dom.js";

const WIDTH = 120, HEIGHT = 24; // of a drawing's own measure
const COLUMNS = 120;            // points that are drawn; more are averaged
const LEAST = 30;               // points a line is drawn over at least, so that one grows from the right

let interval = 10, points = 360;
let newest = null;     // number of the last point
let oldest = null;     // number of the first one that was ever told
let lines = new Map(); // key -> Map of point number -> value

function keyOf(name, labels) {
  const pairs = Object.entries(labels).map(([label, value]) => [label, String(value)]);
  return JSON.stringify([name, ...pairs.sort(([a], [b]) => a < b ? -1 : 1)]);
}

export async function askHistory(signal) {
  const query = newest === null ? "" : `?since=${newest}`;
  const response = await fetch(`api/v1/history${query}`, {signal, cache: "no-store"});
  if (!response.ok) return; // an older daemon: the page lives without lines
  take(record(await response.json()));
}

function take(answer) {
  const first = number(answer.first), last = number(answer.newest);
  if (first === null || last === null) return;
  interval = number(answer.interval_seconds) ?? interval;
  points = number(answer.points) ?? points;
  if (newest === null || first > newest + 1 || last < newest) {
    lines = new Map();
    oldest = first;
  }
  newest = last;
  for (const series of list(answer.series).map(record)) {
    const key = keyOf(word(series.name), record(series.labels));
    const line = lines.get(key) ?? new Map();
    lines.set(key, line);
    list(series.values).forEach((value, i) => {
      if (number(value) !== null) line.set(first + i, value);
    });
    for (const at of line.keys()) if (at <= newest - points) line.delete(at);
  }
  for (const [key, line] of lines) if (!line.size) lines.delete(key);
  oldest = Math.max(oldest ?? first, newest - points + 1);
}

// Values of a series from the oldest to the newest point, null where not known; [] if there is none.
export function series(name, labels = {}) {
  const line = newest === null ? undefined : lines.get(keyOf(name, labels));
  if (line === undefined) return [];
  return Array.from({length: newest - oldest + 1}, (_, i) => line.get(oldest + i) ?? null);
}

// The sum (or mean) over several series at each point at which one of them is known.
export function together(all, of) {
  const longest = Math.max(0, ...all.map(one => one.length));
  return Array.from({length: longest}, (_, i) => of(all.map(one => one[i] ?? null)));
}

// The sum over all of them; [] if the daemon keeps no line of one: the rest is not the sum.
export function summed(all) {
  return all.every(one => one.length) ? together(all, total) : [];
}

export function period() {
  if (newest === null) return "";
  const minutes = Math.round((newest - oldest + 1) * interval / 60);
  return minutes >= 60 ? "last hour" : minutes > 1 ? `last ${minutes} minutes` : "last minute";
}

// Draws values as a line into `cell` behind what it says. `most` is the top of the scale; without
// it that is the highest value. `write` turns a value into words, for those who do not see it.
export function showLine(cell, text, sub, values, {write, most = null, extra = ""}) {
  const known = values.filter(value => value !== null);
  if (known.length < 2) return renew(cell, [text, sub], () => parts(text, sub, extra));
  const top = most ?? Math.max(...known);
  renew(cell, [text, sub, newest, values.at(-1), top], () => {
    const [said, ...rest] = parts(text, sub, extra);
    return [said, line(values, known, top, write), ...rest];
  });
}

function parts(text, sub, className = "") {
  const said = make("span", `said ${className}`.trim());
  if (text === null) {
    said.append(make("span", "unknown", "\u2013"));
    said.firstChild.title = "not known";
  } else said.append(text);
  return sub ? [said, make("span", "sub", sub)] : [said];
}

function line(values, known, top, write) {
  const svg = drawing("line");
  const low = write(Math.min(...known)), high = write(Math.max(...known));
  svg.querySelector("title").textContent = `${period()}: ${low} to ${high}`;
  const [area, stroke] = svg.querySelectorAll("path");
  const pieces = strokes(reduced(values), Math.max(values.length, LEAST), top);
  stroke.setAttribute("d", pieces.map(piece => `M${piece.map(at).join("L")}`).join(""));
  area.setAttribute("d", pieces.map(piece =>
    `M${piece[0][0]} ${HEIGHT}L${piece.map(at).join("L")}L${piece.at(-1)[0]} ${HEIGHT}Z`).join(""));
  return svg;
}

function at([x, y]) { return `${x} ${y}`; }

// [index, value] with neighbours averaged where there are more points than columns.
function reduced(values) {
  const step = Math.max(1, Math.ceil(values.length / COLUMNS));
  const found = [];
  for (let end = values.length; end > 0; end -= step) {
    const known = values.slice(Math.max(0, end - step), end).filter(value => value !== null);
    const value = known.length ? known.reduce((a, b) => a + b, 0) / known.length : null;
    found.unshift([values.length - end, value]);
  }
  return found; // counted from the newest
}

function strokes(found, length, top) {
  const pieces = [];
  let piece = [];
  for (const [back, value] of [...found, [0, null]]) {
    if (value === null) {
      if (piece.length === 1) piece.push([Math.min(WIDTH, piece[0][0] + 0.7), piece[0][1]]);
      if (piece.length) pieces.push(piece);
      piece = [];
      continue;
    }
    const height = top > 0 ? Math.min(1, Math.max(0, value / top)) : 0;
    const x = WIDTH * (1 - back / (length - 1 || 1)), y = HEIGHT - 1 - height * (HEIGHT - 2);
    piece.push([Number(x.toFixed(1)), Number(y.toFixed(1))]);
  }
  return pieces;
}
