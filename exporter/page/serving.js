// Inference servers: their models, how long clients wait, and what is in the way.

import {byId, body, keep, make, renew, row, show, stateOf, wideRow} from "./dom.js";
import {series, showLine} from "./history.js";
import {dollars, figure, grouped, latency, list, number, ranges, record, scaled, share, word}
  from "./words.js";

const MODELS = 50; // models of one server that are shown (adapters can be hundreds)

export function showServers(servers) {
  const table = byId("servers");
  byId("no-servers").hidden = servers.length > 0;
  table.hidden = !servers.length;
  const build = () => body(wideRow(table, "server", {scope: "rowgroup"}), wideRow(table, "note"));
  keep(table, 2, servers, (server, i) => `${i} ${word(server.server)}`, build, (tbody, server) => {
    tbody.dataset.server = word(server.server);
    showServer(tbody.rows[0].cells[0], server);
    showNote(tbody.rows[1], server);
    showModels(table, tbody, server);
  });
}

function showServer(cell, server) {
  const engine = [word(server.engine), word(server.version)].filter(Boolean).join(" ");
  const gpus = list(server.gpus).length ? `GPUs ${ranges(list(server.gpus))}` : "";
  const silent = Object.entries(record(server.probes)).filter(([, up]) => up === 0)
    .map(([kind]) => `does not answer (${kind})`);
  renew(cell, [server.state, server.server, engine, gpus, silent], () => [
    stateOf(word(server.state)),
    make("span", "text", word(server.server)),
    engine ? make("span", "engine text", engine) : make("span", "engine", "engine not known"),
    ...(gpus ? [make("span", "engine", gpus)] : []),
    ...silent.map(text => make("span", "engine bad", text)),
  ]);
}

function showNote(tr, server) {
  const missing = list(server.unresolved).map(String), models = list(server.models);
  const left = models.length - MODELS;
  renew(tr.cells[0], [missing, models.length, server.state], () => {
    const lines = [];
    if (missing.length) lines.push(line("Not on its page:", `${missing.join(", ")}.`
      + " The engine was upgraded, or these metrics are switched off."));
    if (!models.length) lines.push(line("", "No figures now."));
    if (left > 0) lines.push(line("", `The first ${MODELS} models; ${left} more are on /metrics.`));
    tr.hidden = !lines.length;
    return lines;
  });
}

function line(strong, text) {
  const node = make("div", "text");
  if (strong) node.append(make("strong", "", strong), " ");
  node.append(text);
  return node;
}

function showModels(table, tbody, server) {
  const models = list(server.models).slice(0, MODELS).map(record);
  keep(tbody, 2, models, model => JSON.stringify([model.model_name, model.model_version]),
    () => row(table),
    (tr, model) => showModel(tr.cells, model, {server: word(server.server),
      model_name: word(model.model_name), model_version: word(model.model_version)}));
}

function showModel(cells, model, labels) {
  const [name, ttft, tpot, e2e, requests, input, output, active, waiting, cache, price] = cells;
  show(name, word(model.model_name) || null, word(model.model_version));
  const latencies = record(model.latency);
  showLatency(ttft, record(latencies.ttft), series("llm_ttft_p95_seconds", labels));
  showLatency(tpot, record(latencies.tpot), series("llm_tpot_p95_seconds", labels));
  showLatency(e2e, record(latencies.e2e), []);
  show(requests, small(number(model.requests_per_second)));
  show(input, figure(rounded(number(model.input_tokens_per_second))));
  showLine(output, figure(rounded(number(model.output_tokens_per_second))), "",
    series("llm_output_tokens_per_second", labels), {write: value => scaled(value, "tokens/s")});
  showLine(active, figure(number(model.active_requests)), "",
    series("llm_active_requests", labels), {write: figure});
  showLine(waiting, figure(number(model.waiting_requests)), "",
    series("llm_waiting_requests", labels), {write: figure});
  showCache(cache, model, labels);
  showPrice(price, model);
}

// p95 in the middle of attention, the others below it; what a histogram's bounds allow on top.
function showLatency(cell, percentiles, values) {
  const at = name => number(record(percentiles[name]).seconds);
  const lower = number(record(percentiles.p95).lower), upper = number(record(percentiles.p95).upper);
  const subs = [["p50", at("p50")], ["p99", at("p99")]].filter(([, value]) => value !== null)
    .map(([name, value]) => `${name} ${latency(value)}`);
  showLine(cell, latency(at("p95") ?? at("p90")), subs.join(", "), values, {write: latency});
  cell.title = lower === null || upper === null ? ""
    : `p95 lies between ${latency(lower)} and ${latency(upper)}`;
}

function showCache(cell, model, labels) {
  const ratio = number(model.kv_cache_usage_ratio), hits = number(model.prefix_cache_hit_ratio);
  showLine(cell, share(ratio), hits === null ? "" : `${share(hits)} prefix hits`,
    series("llm_kv_cache_usage_ratio", labels),
    {write: share, most: 1, extra: ratio !== null && ratio > 0.95 ? "warn" : ""});
}

function showPrice(cell, model) {
  const output = number(model.dollars_per_million_output_tokens);
  const all = number(model.dollars_per_million_tokens);
  show(cell, dollars(output ?? all), output !== null && all !== null ? `${dollars(all)} blended` : "");
}

function small(value) { return value === null ? null : grouped(value, value < 9.95 ? 2 : 0); }
function rounded(value) { return value === null ? null : value < 10 ? value : Math.round(value); }
