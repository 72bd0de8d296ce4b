// Promises: what was promised, what is measured, what is left of what the target allows.

import {byId, body, keep, make, renew, row, show, showGauge, stateOf} from "./dom.js";
import {series, showLine} from "./history.js";
import {figure, grouped, latency, list, names, number, plain, record, share, word, words}
  from "./words.js";

const STATES = new Map([["met", "up"], ["violated", "failed"], ["undetermined", "waiting"]]);
const KEYS = ["sla", "objective", "tier", "model_name", "server"];

export function showPromises(promises) {
  const table = byId("promise-table");
  byId("promises").hidden = !promises.length;
  keep(table, 2, promises, one => JSON.stringify(KEYS.map(key => word(one[key]))),
    () => body(row(table)), (tbody, one) => {
      tbody.dataset.objective = word(one.objective);
      showPromise(tbody.rows[0].cells, one);
    });
}

function showPromise(cells, one) {
  const [name, state, lately, hour, compliance, budget, burn] = cells;
  const windows = record(one.windows), short = record(windows["5m"]), long = record(windows["1h"]);
  const about = [word(one.sla), word(one.tier), word(one.model_name), word(one.server)];
  renew(name, [one.objective, one.statement, about], () => [
    make("span", "text", words(word(one.objective))),
    make("span", "promised text", word(one.statement)),
    make("span", "sub text", about.filter(Boolean).join(" \u00b7 "))]);
  showState(state, one);
  show(lately, measured(one, short));
  show(hour, measured(one, long));
  showCompliance(compliance, one, long);
  showBudget(budget, windows);
  show(burn, burning(number(short.burn_rate)), number(long.burn_rate) === null ? ""
    : `${burning(long.burn_rate)} over 1 h`);
}

function showState(cell, one) {
  const state = word(one.state) || "undetermined";
  const causes = list(one.causes).map(record).map(cause => words(word(cause.cause)));
  const few = number(one.events) !== null && number(one.minimum_events) !== null
    && one.events < one.minimum_events;
  const sub = causes.length ? `because of ${names(causes, 3)}`
    : state === "undetermined" && few ? `${figure(Math.floor(one.events))} of at least `
      + `${figure(one.minimum_events)} events` : "";
  renew(cell, [state, sub], () => [stateOf(STATES.get(state) ?? "other", state),
    ...(sub ? [make("span", "sub", sub)] : [])]);
}

function measured(one, window) {
  if (number(window.seconds) !== null) return latency(window.seconds);
  if (number(window.tokens_per_second) !== null) return plain(window.tokens_per_second, "tokens/s");
  if (number(window.ratio) !== null) return share(window.ratio, 2);
  if (number(one.delivered_tokens_per_second) !== null && window === record(one.windows)["5m"])
    return plain(one.delivered_tokens_per_second, "tokens/s");
  return null;
}

function showCompliance(cell, one, window) {
  const ratio = number(window.compliance_ratio), low = number(window.compliance_lower_ratio);
  const high = number(window.compliance_upper_ratio), target = number(one.target_ratio);
  const bounds = low === null || high === null || low === high ? ""
    : `${share(low, 1)} to ${share(high, 1)}`;
  const wanted = target === null ? "" : `${share(target, target > 0.99 ? 1 : 0)} wanted`;
  const labels = Object.fromEntries(KEYS.map(key => [key, word(one[key])]));
  showLine(cell, share(ratio, ratio === 1 || ratio === 0 ? 0 : 1),
    [wanted, bounds].filter(Boolean).join("; "), series("sla_compliance_ratio", labels),
    {write: value => share(value, 1), most: 1});
}

// The longest window for which it is told.
function showBudget(cell, windows) {
  const known = Object.entries(windows).map(([name, one]) =>
    [name, number(record(one).budget_remaining_ratio)]).filter(([, left]) => left !== null);
  if (!known.length) return show(cell, null);
  const [name, left] = known.at(-1);
  showGauge(cell, left, left < 0 ? `overdrawn by ${share(-left)}` : share(left), `over ${name}`);
}

function burning(rate) {
  return rate === null ? null : `${grouped(rate, rate < 10 ? 1 : 0)}\u00d7`;
}
