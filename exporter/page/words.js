// How values are written. Nothing here touches the page.

export const SPACE = "\u00a0";

export function number(value) { return typeof value === "number" && isFinite(value) ? value : null; }
export function list(value) { return Array.isArray(value) ? value : []; }
export function record(value) { return value !== null && typeof value === "object" ? value : {}; }
export function word(value) { return typeof value === "string" ? value : ""; }

export function figure(value) {
  if (value === null) return null;
  if (Math.abs(value) >= 1e7) return grouped(value / 1e6, 1) + SPACE + "M";
  return grouped(value, Math.abs(value) < 10 && value % 1 !== 0 ? 1 : 0);
}

export function grouped(value, digits) {
  return value.toLocaleString("en", {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

export function share(ratio, digits = Math.abs(ratio) < 0.0995 && ratio !== 0 ? 1 : 0) {
  return ratio === null ? null : `${grouped(ratio * 100, digits)}${SPACE}%`;
}

// Three digits and a prefix: 3.35 TB/s, 78.6 GB, 1.94 GHz. Powers of a thousand.
export function scaled(value, unit) {
  if (value === null) return null;
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  let at = 0, rest = value;
  while (Math.abs(rest) >= 999.5 && at < prefixes.length - 1) { rest /= 1000; at += 1; }
  const digits = at === 0 || Math.abs(rest) >= 99.95 ? 0 : Math.abs(rest) >= 9.995 ? 1 : 2;
  return `${grouped(rest, digits)}${SPACE}${prefixes[at]}${unit}`;
}

export function plain(value, unit, digits = 0) {
  return value === null ? null : `${grouped(value, digits)}${SPACE}${unit}`;
}

export function dollars(value) {
  if (value === null) return null;
  const digits = Math.abs(value) >= 1000 ? 0 : Math.abs(value) >= 0.995 || value === 0 ? 2 : 4;
  return `$${grouped(value, digits)}`;
}

// Milliseconds below a second: latencies.
export function latency(seconds) {
  if (seconds === null) return null;
  if (seconds >= 0.9995) return `${grouped(seconds, seconds < 9.995 ? 2 : 1)}${SPACE}s`;
  const ms = seconds * 1000;
  return `${grouped(ms, ms < 9.95 ? 1 : 0)}${SPACE}ms`;
}

export function span(seconds) {
  if (seconds === null) return null;
  if (seconds < 0.001) return `${(seconds * 1000).toPrecision(1)}${SPACE}ms`;
  if (seconds < 0.9995) return `${Number((seconds * 1000).toPrecision(2))}${SPACE}ms`;
  if (seconds < 59.95) return `${seconds.toFixed(1)}${SPACE}s`;
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const rest = Math.round(seconds);
  const at = units.findIndex(([, size]) => rest >= size);
  const [[large, size], small] = [units[at], units[at + 1]];
  const second = Math.floor(rest % size / small[1]);
  const first = `${Math.floor(rest / size)}${SPACE}${large}`;
  return second ? `${first} ${second}${SPACE}${small[0]}` : first;
}

export function clockTime(date) {
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
}
function two(value) { return String(value).padStart(2, "0"); }

export function stamp(unix) {
  const date = new Date(unix * 1000);
  const day = [date.getFullYear(), two(date.getMonth() + 1), two(date.getDate())].join("-");
  return `${day} ${clockTime(date)}`;
}

export function ago(unix, now) {
  const seconds = Math.max(0, Math.round(now - unix));
  return seconds < 60 ? `${seconds}${SPACE}s ago` : `${span(seconds)} ago`;
}

export function counts(value) {
  const rows = Object.entries(record(value)).filter(([, n]) => number(n) !== null && n > 0);
  return rows.sort((a, b) => b[1] - a[1]).map(([name, n]) => `${figure(n)}${SPACE}${name}`);
}

export function names(found, most = 24) {
  const shown = found.slice(0, most).map(String).join(", ");
  return found.length > most ? `${shown} and ${found.length - most} more` : shown;
}

export function words(text) { return text.replaceAll("_", " "); }

// Numbers in a row are told as ranges: GPUs 0 to 3.
export function ranges(numbers) {
  const parts = [];
  for (const text of numbers.map(String)) {
    const last = parts.at(-1);
    if (last && /^[0-9]{1,6}$/.test(text) && Number(text) === last.to + 1) last.to += 1;
    else parts.push({from: text, to: Number(text)});
  }
  return parts.map(({from, to}) => to > Number(from) ? `${from}\u2013${to}` : from).join(", ");
}

export function mean(values) {
  const known = values.filter(value => value !== null);
  return known.length ? total(known) / known.length : null;
}

export function total(values) {
  const known = values.filter(value => value !== null);
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}
