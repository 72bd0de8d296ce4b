// The first look: one tile for each part of the node, what holds now, what the cloud announces.

import {byId, keep, make, renew, shape, show} from "./dom.js";
import {series, showLine, summed, together} from "./history.js";
import {SPACE, dollars, figure, list, mean, names, number, record, scaled, share, span, stamp,
  total, word} from "./words.js";

const MANY = 8;

export function showTiles(answer) {
  const tiles = [gpuTile, activityTile, powerTile, mfuTile, promiseTile, servingTile, fabricTile,
    costTile].map(tile => tile(answer)).filter(tile => tile !== null);
  byId("tiles").hidden = !tiles.length;
  keep(byId("tiles"), 0, tiles, tile => tile.name, build, (li, tile) => {
    const link = li.firstChild, [name, value] = link.children;
    if (link.getAttribute("href") !== tile.href) link.setAttribute("href", tile.href);
    li.dataset.tile = tile.name;
    if (name.textContent !== tile.name) name.textContent = tile.name;
    showLine(value, tile.text, tile.sub ?? "", tile.values ?? [],
      {write: tile.write ?? String, most: tile.most ?? null, extra: tile.grave ? "bad" : ""});
  });
}

function build() {
  const li = make("li"), link = make("a", "tile");
  link.append(make("span", "tile-name"), make("span", "tile-value"));
  li.append(link);
  return li;
}

const rows = (answer, name) => list(answer[name]).map(record);
const gpuLabels = gpu => ({gpu: word(gpu.gpu), uuid: word(gpu.uuid)});

function gpuTile(answer) {
  const gpus = rows(answer, "gpus");
  if (!gpus.length) return null;
  const up = gpus.filter(gpu => number(gpu.up) !== 0).length, lost = gpus.length - up;
  const used = total(gpus.map(gpu => number(gpu.memory_used_bytes)));
  const all = total(gpus.map(gpu => number(gpu.memory_total_bytes)));
  return {name: "GPUs", href: "#gpus", text: `${up} of ${gpus.length} up`, grave: lost > 0,
    sub: used === null || !all ? "" : `${share(used / all)} of memory used`};
}

function activityTile(answer) {
  const gpus = rows(answer, "gpus"), sm = mean(gpus.map(gpu => number(gpu.sm_active_ratio)));
  const busy = mean(gpus.map(gpu => number(gpu.utilization_ratio)));
  if (sm === null && busy === null) return null;
  const tensor = mean(gpus.map(gpu => number(gpu.tensor_active_ratio)));
  const name = sm === null ? "gpu_busy_ratio" : "gpu_sm_active_ratio";
  return {name: "GPU activity", href: "#gpus", text: share(sm ?? busy), write: share, most: 1,
    sub: tensor === null ? "" : `tensor cores ${share(tensor)}`,
    values: together(gpus.map(gpu => series(name, gpuLabels(gpu))), mean)};
}

function powerTile(answer) {
  const gpus = rows(answer, "gpus"), watts = total(gpus.map(gpu => number(gpu.power_watts)));
  if (watts === null) return null;
  const limit = total(gpus.map(gpu => number(gpu.power_limit_watts)));
  return {name: "GPU power", href: "#gpus", text: scaled(watts, "W"), most: limit,
    sub: limit === null ? "" : `of ${scaled(limit, "W")}`, write: value => scaled(value, "W"),
    values: together(gpus.map(gpu => series("gpu_power_watts", gpuLabels(gpu))), total)};
}

function mfuTile(answer) {
  const runs = rows(answer, "runs");
  if (!runs.length) return null;
  const run = runs.find(one => list(one.mfu).length) ?? runs[0], mfu = record(list(run.mfu)[0]);
  const more = runs.length > 1 ? ` and ${runs.length - 1} more` : "";
  return {name: "MFU", href: "#training", text: share(number(mfu.ratio), 1),
    sub: `${word(run.run)}${more}`, write: value => share(value, 1),
    values: series("train_mfu_ratio", {run: word(run.run), convention: word(mfu.convention),
      peak: word(mfu.peak)})};
}

function promiseTile(answer) {
  const promises = rows(answer, "promises");
  if (!promises.length) return null;
  const of = state => promises.filter(one => one.state === state).length;
  const violated = of("violated"), open = promises.length - of("met") - violated;
  return {name: "SLA", href: "#promises", text: `${of("met")} of ${promises.length} met`,
    grave: violated > 0, sub: [violated ? `${violated} violated` : "",
      open ? `${open} undetermined` : ""].filter(Boolean).join(", ")};
}

function servingTile(answer) {
  const servers = rows(answer, "servers");
  const models = servers.flatMap(server => rows(server, "models")
    .map(model => ({...model, server: word(server.server)})));
  if (!servers.length) return null;
  const rate = total(models.map(model => number(model.output_tokens_per_second)));
  const active = total(models.map(model => number(model.active_requests)));
  const waiting = total(models.map(model => number(model.waiting_requests)));
  const labels = model => ({server: model.server, model_name: word(model.model_name),
    model_version: word(model.model_version)});
  return {name: "Output tokens", href: "#serving", text: rate === null ? null : scaled(rate, "/s"),
    sub: [active === null ? "" : `${figure(active)} running`,
      waiting === null ? "" : `${figure(waiting)} waiting`].filter(Boolean).join(", "),
    write: value => scaled(value, "tokens/s"),
    values: summed(models.filter(model => number(model.output_tokens_per_second) !== null)
      .map(model => series("llm_output_tokens_per_second", labels(model))))};
}

function fabricTile(answer) {
  const ports = rows(record(answer.fabric), "ports");
  if (!ports.length) return null;
  const wanted = ports.filter(port => number(port.expected_up) !== 0);
  const down = wanted.filter(port => number(port.up) === 0);
  // A bond carries what its ports carry: each byte is counted once.
  const carrying = ports.filter(port => port.physical !== false && number(port.receive_bytes) !== null);
  const values = summed(carrying.map(port => series("nic_receive_bytes_per_second",
    {device: word(port.device), port: word(port.port)})));
  return {name: "Network", href: "#fabric", text: scaled(values.at(-1) ?? null, "B/s") ?? "\u2013",
    grave: down.length > 0, write: value => scaled(value, "B/s"), values,
    sub: down.length ? `${down.length} of ${wanted.length} ports down`
      : `received; all ${wanted.length} ports up`};
}

function costTile(answer) {
  const cost = record(answer.cost), rate = number(cost.dollars_per_hour);
  if (rate === null) return null;
  const idle = number(cost.idle_dollars_per_hour);
  return {name: "Cost", href: "#cost", text: `${dollars(rate)}/h`,
    sub: idle === null ? "" : `${dollars(idle)} of it idle`,
    values: series("cost_dollars_per_hour"), write: dollars};
}

// ------------------------------------------------------------ the demo's story

export function showStory(story) {
  const title = word(story.title), left = number(story.seconds_left);
  byId("story").hidden = !title;
  const next = left === null ? "" : ` Next, in ${span(Math.round(left))}: ${word(story.next)}.`;
  show(byId("story"), title
    ? `Demo, chapter ${figure(number(story.number))} of ${figure(number(story.chapters))}: ${title}.`
      + ` ${word(story.told)}${next}`
    : "");
}

// ------------------------------------------------------------ what the cloud announces

const ANNOUNCED = new Map([
  ["interruption", "The cloud takes this node away"],
  ["rebalance", "The cloud will probably take this node away"],
  ["maintenance", "The cloud announces work on this node"],
]);

export function showAnnounced(notices, now) {
  const node = byId("announced"), shown = notices.slice(0, MANY);
  node.hidden = !shown.length;
  renew(node, shown.map(one => announced(one, now)), () => shown.map(one =>
    make("li", one.kind === "interruption" ? "notice text" : "notice mild text",
      announced(one, now))));
}

function announced(one, now) {
  const what = ANNOUNCED.get(one.kind) ?? "The cloud announces something";
  const deadline = number(one.deadline);
  const left = deadline === null ? null : deadline - now;
  const when = left === null ? "the time is not told"
    : left > 0 ? `at ${stamp(deadline)}, in ${span(Math.round(left))}`
    : `since ${stamp(deadline)}, which is past`;
  const about = word(one.detail) ? ` (${word(one.detail).slice(0, 200)})` : "";
  return `${what}: ${word(one.action)}, ${when}${about}.`;
}

// ------------------------------------------------------------ conditions of the alert rules

const SEVERITIES = new Map([["page", "failed"], ["ticket", "degraded"], ["info", "waiting"]]);

export function showConditions(conditions) {
  const holding = list(conditions.holding).map(record), watched = number(conditions.watched);
  byId("conditions").hidden = watched === null;
  show(byId("no-conditions"), holding.length ? "" : `None of the ${watched} conditions that this `
    + "page can tell holds now.");
  keep(byId("condition-list"), 0, holding, one => `${word(one.alert)} ${word(one.severity)}`,
    () => make("li"), showCondition);
}

function showCondition(li, one) {
  const about = list(one.about).map(String), since = number(one.held_seconds), wait = number(one.for_seconds);
  const when = since === null ? "" : since >= (wait ?? 0) ? `holds for ${rough(since)}`
    : `holds for ${rough(since)} of ${rough(wait)}`;
  const severity = word(one.severity);
  li.dataset.alert = word(one.alert);
  renew(li, [one.alert, severity, one.what, about, when], () => {
    const state = make("span", "state");
    state.dataset.state = SEVERITIES.get(severity) ?? "other";
    state.append(shape(state.dataset.state), make("span", "", severity));
    return [state, make("strong", "", word(one.alert)), make("span", "text", word(one.what)),
      make("span", "sub text", [names(about, 6), when].filter(Boolean).join(" \u00b7 "))];
  });
}

function rough(seconds) {
  return seconds < 60 ? `${Math.round(seconds)}${SPACE}s` : span(Math.floor(seconds / 60) * 60);
}
