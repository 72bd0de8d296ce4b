// The GPUs: one row each, twenty of them without scrolling sideways.

import {byId, body, keep, make, renew, row, show, showGauge, stateOf} from "./dom.js";
import {series, showLine} from "./history.js";
import {figure, list, names, number, plain, record, scaled, share, span, word, words} from "./words.js";

const ACTIONS = new Map([[1, "reset the GPU"], [2, "reboot the node"], [3, "drain its peers"],
  [4, "drain and reset"], [5, "recover the IMEX domain"], [6, "reset the bus"],
  [7, "reboot the system"]]);

export function showGpus(gpus) {
  const table = byId("gpu-table");
  byId("gpus").hidden = !gpus.length;
  const products = new Set(gpus.map(gpu => word(gpu.name)));
  show(byId("gpu-products"), products.size === 1 ? `${gpus.length} \u00d7 ${[...products][0]}` : "");
  keep(table, 2, gpus, gpu => `${word(gpu.uuid)} ${word(gpu.gpu)}`, () => body(row(table)),
    (tbody, gpu) => {
      tbody.dataset.gpu = word(gpu.gpu);
      showGpu(tbody.rows[0].cells, gpu, products.size === 1);
    });
}

function showGpu(cells, gpu, sameProduct) {
  const [head, sm, tensor, hbm, memory, power, clock, temperature, throttled, health] = cells;
  const labels = {gpu: word(gpu.gpu), uuid: word(gpu.uuid)};
  showHead(head, gpu, sameProduct);
  showActivity(sm, gpu, labels);
  showRatio(tensor, number(gpu.tensor_active_ratio), series("gpu_tensor_active_ratio", labels));
  showRatio(hbm, number(gpu.dram_active_ratio), series("gpu_dram_active_ratio", labels),
    scaled(number(gpu.hbm_bytes_per_second), "B/s") ?? "");
  showMemory(memory, number(gpu.memory_used_bytes), number(gpu.memory_total_bytes));
  showPower(power, gpu, labels);
  const most = number(gpu.clock_max_hertz);
  showLine(clock, scaled(number(gpu.clock_hertz), "Hz"), "", series("gpu_clock_hertz", labels),
    {write: value => scaled(value, "Hz"), most});
  showTemperature(temperature, gpu, labels);
  showThrottling(throttled, gpu);
  showHealth(health, gpu);
}

function showHead(cell, gpu, sameProduct) {
  const pods = new Set(list(gpu.owners).map(record)
    .map(one => [one.namespace, one.pod].map(word).filter(Boolean).join("/")));
  const who = [...list(gpu.runs), ...list(gpu.servers)].map(String);
  const subs = [sameProduct ? "" : word(gpu.name), names(who, 3), names([...pods], 2)]
    .filter(Boolean);
  renew(cell, [gpu.gpu, gpu.uuid, subs], () => {
    const name = make("span", "index", word(gpu.gpu) || "?");
    name.title = word(gpu.uuid);
    return [name, ...subs.map(sub => make("span", "sub text clip", sub))];
  });
}

// Where SMs are not sampled (no GPM, no DCGM) the driver's own utilization stands in, and says so.
function showActivity(cell, gpu, labels) {
  const active = number(gpu.sm_active_ratio);
  if (active !== null) return showRatio(cell, active, series("gpu_sm_active_ratio", labels));
  const busy = number(gpu.utilization_ratio);
  showRatio(cell, busy, series("gpu_busy_ratio", labels), busy === null ? "" : "kernels running");
}

function showRatio(cell, ratio, values, sub = "") {
  showLine(cell, share(ratio), sub, values, {write: share, most: 1});
}

function showMemory(cell, used, total) {
  if (used === null) return show(cell, null);
  showGauge(cell, total ? used / total : null, scaled(used, "B"),
    total ? `of ${scaled(total, "B")}` : "");
}

function showPower(cell, gpu, labels) {
  const limit = number(gpu.power_limit_watts);
  showLine(cell, plain(number(gpu.power_watts), "W"), limit === null ? "" : `of ${plain(limit, "W")}`,
    series("gpu_power_watts", labels), {write: value => plain(value, "W"), most: limit});
}

function showTemperature(cell, gpu, labels) {
  const memory = number(gpu.memory_temperature_celsius);
  showLine(cell, plain(number(gpu.temperature_celsius), "\u00b0C"),
    memory === null ? "" : `memory ${plain(memory, "\u00b0C")}`,
    series("gpu_temperature_celsius", labels),
    {write: value => plain(value, "\u00b0C"), most: 100});
}

// A power cap is how an accelerator works; heat and the power brake are not.
const CALM = new Set(["sw_power_cap", "idle", "applications_clocks", "sync_boost", "display_clocks"]);

function showThrottling(cell, gpu) {
  const now = list(gpu.throttled_by).map(String);
  const past = Object.entries(record(gpu.throttled_seconds)).filter(([, s]) => number(s) !== null)
    .map(([reason, seconds]) => `${words(reason)} ${span(seconds)}`);
  renew(cell, [now, past.map(text => text.split(" ").slice(0, -2))], () => {
    const said = make("span", now.some(reason => !CALM.has(reason)) ? "warn" : "",
      now.length ? now.map(words).join(", ") : "no");
    said.title = past.length ? `since the daemon started: ${past.join(", ")}` : "";
    return [said];
  });
}

function showHealth(cell, gpu) {
  const found = troubles(gpu);
  renew(cell, [found, gpu.up], () => {
    if (found.length) return [listOf(found)];
    return [number(gpu.up) === null ? make("span", "unknown", "\u2013") : stateOf("up", "sound")];
  });
}

function listOf(found) {
  const ul = make("ul", "troubles");
  ul.append(...found.map(({text, title, grave}) => {
    const li = make("li", grave ? "bad" : "warn", text);
    if (title) li.title = title;
    return li;
  }));
  return ul;
}

function troubles(gpu) {
  const found = [];
  if (number(gpu.up) === 0) found.push({text: "lost", grave: true});
  for (const xid of list(gpu.xids).map(record))
    found.push({text: `XID ${word(xid.xid)}${number(xid.count) > 1 ? ` \u00d7${figure(xid.count)}` : ""}`,
      title: [word(xid.name), words(word(xid.action))].filter(Boolean).join("; "),
      grave: xid.severity === "critical"});
  const action = number(gpu.recovery_action);
  if (action) found.push({text: ACTIONS.get(action) ?? `recovery action ${action}`, grave: true});
  const errors = number(gpu.uncorrected);
  if (errors) found.push({text: `${figure(errors)} uncorrected ECC`, grave: true});
  const links = number(gpu.nvlinks), up = number(gpu.nvlinks_up);
  if (links !== null && up !== null && up < links)
    found.push({text: `${links - up} of ${links} NVLinks down`, grave: true});
  return found;
}
