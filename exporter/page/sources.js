// The daemon itself: what it reads, how that goes, and which pages it has.

import {body, byId, keep, make, renew, row, shape, show, stateOf, wideRow} from "./dom.js";
import {ago, counts, figure, list, names, number, record, span, stamp, word} from "./words.js";

const MANY = 8; // problems of one source that are shown at once
const WORST_FIRST = ["stuck", "failed", "stale", "degraded", "waiting"];
const MEANING = new Map([
  ["timeout", "did not answer in time"],
  ["unavailable", "is not there"],
  ["denied", "permission was refused"],
  ["malformed", "what was read makes no sense"],
  ["io", "input/output error"],
  ["bug", "an error in flopwatch"],
]);

export function showDaemon(about, sources, now) {
  const config = record(about.config), loaded = number(config.loaded);
  show(byId("version"), word(about.version) || null);
  show(byId("uptime"), span(number(about.uptime_seconds)));
  show(byId("ready"), typeof about.ready !== "boolean" ? null : about.ready ? "yes" : "not yet");
  byId("unready").hidden = about.ready !== false;
  show(byId("config"), configName(config));
  byId("config").classList.toggle("mono", Boolean(word(config.file)));
  show(byId("loaded"), loaded === null ? null : `loaded ${stamp(loaded)}, ${ago(loaded, now)}`);
  showReload(config, loaded);
  showLead(sources);
  showSeries(record(about.series), sources);
}

function configName(config) {
  if (word(config.file)) return config.file;
  if (typeof config.from_file !== "boolean") return null;
  return config.from_file ? "from a file" : "built-in defaults";
}

function showReload(config, loaded) {
  const failed = config.last_reload_successful === false;
  byId("reload").hidden = !failed;
  if (!failed) return;
  const since = loaded === null ? " before" : ` at ${stamp(loaded)}`;
  renew(byId("reload"), [config.file, loaded], () => [
    make("strong", "", "The last reload of the configuration failed."),
    ` The one loaded${since} is still in force. The daemon's log says what is wrong; so does `,
    make("code", "text", `flopwatch check ${word(config.file) || "FILE"}`),
    ".",
  ]);
}

function showLead(sources) {
  const sick = sources.filter(source => source.state !== "up");
  const states = new Set(sick.map(source => source.state));
  const state = WORST_FIRST.find(one => states.has(one)) ?? (sick.length ? "other" : "up");
  const lead = byId("lead");
  renew(lead, [state, leadText(sources, sick)], () => {
    lead.dataset.state = state;
    return [shape(state), make("span", "text", leadText(sources, sick))];
  });
}

function leadText(sources, sick) {
  if (!sources.length) return "No source is enabled.";
  if (!sick.length) return sources.length > 2 ? `All ${sources.length} sources are up.`
    : sources.length === 2 ? "Both sources are up." : "The one source is up.";
  const named = sick.slice(0, 5).map(({name, state}) =>
    `${word(name)} ${state === "failed" ? "has failed" : `is ${word(state)}`}`);
  if (sick.length > 5) named.push(`${sick.length - 5} more are not up`);
  const up = sources.length - sick.length;
  return `${up} of ${sources.length} sources ${up === 1 ? "is" : "are"} up: ${named.join(", ")}.`;
}

function showSeries(series, sources) {
  // A group that has not been written yet has no number, but its page can be asked for.
  const names = new Set([...Object.keys(series), ...sources.map(source => word(source.group))]);
  names.delete("");
  const known = Object.values(series).map(number).filter(value => value !== null);
  const total = known.length ? figure(known.reduce((a, b) => a + b, 0)) : null;
  show(byId("total"), total);
  show(byId("all"), total);
  const build = () => {
    const tr = make("tr"), head = make("th", "text");
    head.scope = "row";
    tr.append(head, make("td", "number"));
    return tr;
  };
  keep(byId("groups").tBodies[0], 0, [...names], name => name, build, (tr, name) => {
    renew(tr.cells[0], name, () => {
      const link = make("a", "", `/metrics?group=${name}`);
      link.href = `metrics?group=${encodeURIComponent(name)}`;
      return [link];
    });
    show(tr.cells[1], figure(number(series[name])));
  });
}

// ------------------------------------------------------------ sources

export function showSources(sources, now) {
  const table = byId("sources");
  const build = () => body(row(table), wideRow(table, "problems", {skip: 1}));
  byId("no-sources").hidden = sources.length > 0;
  table.hidden = !sources.length;
  keep(table, 2, sources, (source, i) => word(source.name) || i, build, (tbody, source) => {
    tbody.dataset.source = word(source.name);
    showSource(tbody.rows[0].cells, source, now);
    showProblems(tbody.rows[1], list(source.faults));
  });
}

function showSource(cells, source, now) {
  const [state, name, series, age, time, found, failures, dropped] = cells;
  const more = stateNote(source, now);
  renew(state, [source.state, more], () =>
    [stateOf(word(source.state)), ...(more ? [make("span", "sub", more)] : [])]);
  show(name, word(source.name) || null, source.group === source.name ? "" : word(source.group));
  show(series, figure(number(source.series)));
  show(age, span(number(source.age_seconds)));
  show(time, span(number(source.read_duration_seconds)));
  // Some sources have nothing to name; of those that do not deliver it is not known.
  const delivers = source.state === "up" || source.state === "degraded";
  show(found, names(list(source.found)) || (delivers ? "" : null));
  showCounts(failures, counts(source.failures));
  showCounts(dropped, counts(source.drops));
}

function showCounts(cell, rows) {
  cell.classList.toggle("none", !rows.length);
  renew(cell, rows, () => rows.length ? rows.map(row => make("span", "", row)) : ["0"]);
}

function stateNote(source, now) {
  const busy = number(source.busy_seconds), last = number(source.last_success);
  if (source.state === "stuck") return busy === null ? "" : `reading for ${span(busy)}`;
  if (source.state !== "failed" && source.state !== "stale") return "";
  return last === null ? "never read" : `last read ${ago(last, now)}`;
}

function showProblems(tr, faults) {
  tr.hidden = !faults.length;
  renew(tr.cells[1], faults, () => {
    const wasOpen = tr.querySelector("details")?.open ?? false;
    const first = make("ul");
    first.append(...faults.slice(0, MANY).map(problem));
    if (faults.length <= MANY) return [first];
    const rest = make("details"), hidden = make("ul");
    hidden.append(...faults.slice(MANY).map(problem));
    rest.append(make("summary", "", `${faults.length - MANY} more problems`), hidden);
    rest.open = wasOpen;
    return [first, rest];
  });
}

function problem(fault) {
  const item = make("li"), reason = word(fault.reason);
  item.append(make("span", "part text", word(fault.part) || "nothing read"));
  item.append(make("span", "reason", reason));
  const detail = word(fault.detail);
  item.append(detail ? make("span", "why text mono", detail)
    : make("span", "why", MEANING.get(reason) ?? ""));
  return item;
}
