// What the node costs, and what for.

import {bar, byId, keep, make, renew, show, showFacts} from "./dom.js";
import {dollars, list, number, plain, record, share, span, word} from "./words.js";

const STATES = ["busy", "idle", "unallocated", "unknown"];

export function showCost(cost) {
  const spent = record(cost.dollars), rate = number(cost.dollars_per_hour);
  const states = STATES.filter(state => number(spent[state]) !== null
    && (state !== "unknown" || spent[state] > 0));
  byId("cost").hidden = rate === null && !states.length;
  const carbon = number(cost.carbon_grams);
  showFacts(byId("cost-facts"), [
    ["Price", rate === null ? null : `${dollars(rate)} an hour`, prices(list(cost.prices).map(record))],
    ["Of this idle", number(cost.idle_dollars_per_hour) === null ? null
      : `${dollars(cost.idle_dollars_per_hour)} an hour`, "over five minutes"],
    ["Energy", dollars(number(cost.energy_dollars)), carbon === null ? ""
      : `${plain(carbon / 1000, "kg", 2)} of CO\u2082`],
    ["Interruptions", number(cost.interruption_dollars) ? dollars(cost.interruption_dollars) : null],
  ]);
  showSpent(states, spent, number(cost.counted_seconds));
  showTenants(list(cost.tenants).map(record));
}

function prices(found) {
  return found.slice(0, 3).map(one => [word(one.pricing), word(one.instance_type),
    one.source === "config" ? "as configured" : `by ${word(one.source)}`,
    word(one.as_of) ? `of ${word(one.as_of)}` : ""].filter(Boolean).join(" ")).join("; ");
}

function showSpent(states, spent, seconds) {
  const table = byId("spent"), all = states.reduce((sum, state) => sum + spent[state], 0);
  table.hidden = !states.length;
  const since = seconds === null ? "" : `, ${span(seconds)}`;
  show(table.caption, `Dollars since the daemon began to count${since}`);
  let from = 0;
  keep(table.tBodies[0], 0, states, state => state, () => {
    const tr = make("tr"), head = make("th");
    head.scope = "row";
    tr.append(head, make("td", "drawn"), make("td", "number"), make("td", "number"));
    return tr;
  }, (tr, state) => {
    const [name, drawn, sum, part] = tr.cells, ratio = all > 0 ? spent[state] / all : null;
    show(name, state);
    const start = from;
    renew(drawn, [start, ratio], () => ratio === null ? [] : [bar(start + ratio, start, state)]);
    show(sum, dollars(spent[state]));
    show(part, share(ratio));
    from += ratio ?? 0;
  });
}

function showTenants(tenants) {
  const table = byId("tenants");
  table.hidden = !tenants.length;
  keep(table.tBodies[0], 0, tenants.slice(0, 20), one => word(one.namespace), () => {
    const tr = make("tr"), head = make("th", "text");
    head.scope = "row";
    tr.append(head, make("td", "number"), make("td", "number"));
    return tr;
  }, (tr, one) => {
    show(tr.cells[0], word(one.namespace) || "nobody");
    show(tr.cells[1], plain(number(one.gpus), "GPUs"));
    show(tr.cells[2], dollars(number(one.dollars)));
  });
}
