// The status page: asks api/v1/status every two seconds and shows the answer. Nothing in it is
// taken for granted: an upgraded daemon may answer a page that is already open. Addresses are
// relative, so that the page also works behind a proxy that puts it under a path.

import {byId, show} from "./dom.js";
import {showFabric} from "./fabric.js";
import {showGpus} from "./gpus.js";
import {askHistory, period} from "./history.js";
import {showCost} from "./money.js";
import {showAnnounced, showConditions, showStory, showTiles} from "./overview.js";
import {showPromises} from "./promises.js";
import {showServers} from "./serving.js";
import {showDaemon, showSources} from "./sources.js";
import {showRuns} from "./training.js";
import {ago, clockTime, list, record} from "./words.js";

const PERIOD = 2000;          // milliseconds from one question to the next
const PATIENCE = 4000;        // milliseconds until a question counts as unanswered
const HISTORY_PERIOD = 10000; // milliseconds from one look at the history to the next

let answered = null;    // when the last good answer came
let lostSince = null;   // when questions began to go unanswered
let timer = 0;
let asking = null;      // the AbortController of the latest question; null while paused
let lookedBack = null;  // when the history was last asked for

class Unusable extends Error {} // there was an answer, but no status in it

function connection(state, text) {
  const node = byId("connection");
  document.body.dataset.connection = node.dataset.state = state;
  if (node.textContent !== text) node.textContent = text;
}

function title(sick) {
  const mark = lostSince !== null ? "(no answer) " : sick ? `(${sick}) ` : "";
  document.title = `${mark}flopwatch ${location.host}`;
}

function lost(error) {
  const now = new Date();
  lostSince ??= now;
  const since = `since ${clockTime(lostSince)}`;
  connection("lost", error instanceof Unusable ? `No status ${since}: ${error.message}.`
    : `The daemon cannot be reached ${since}: ${error.name === "AbortError"
      ? `no answer within ${PATIENCE / 1000} s` : "no connection"}.`);
  showAsOf(now);
  title(0);
}

function showAsOf(now) {
  if (answered === null) return show(byId("asof"), "");
  const at = clockTime(answered);
  if (lostSince === null) return show(byId("asof"), `as of ${at}`);
  const since = ago(answered / 1000, now / 1000);
  return show(byId("asof"), `What is shown here is from ${at}, ${since}.`);
}

function showAnswer(answer, now) {
  const sources = list(answer.sources).map(record), about = record(answer.flopwatch);
  const rows = name => list(answer[name]).map(record);
  for (const part of document.querySelectorAll("[data-answer]")) part.hidden = false;
  showDaemon(about, sources, now);
  showAnnounced(list(record(answer.spot).notices).map(record), now);
  showStory(record(answer.story));
  showConditions(record(answer.conditions));
  showTiles(answer);
  showGpus(rows("gpus"));
  showRuns(rows("runs"), rows("diagnoses"));
  showPromises(rows("promises"));
  showServers(rows("servers"));
  showFabric(record(answer.fabric));
  showCost(record(answer.cost));
  showSources(sources, now);
  byId("undetailed").hidden = answer.detailed !== false;
  for (const node of document.querySelectorAll(".period")) show(node, period());
  for (const link of byId("jump").querySelectorAll("a"))
    link.parentElement.hidden = document.querySelector(link.getAttribute("href")).hidden;
  reachable();
  return sources.filter(source => source.state !== "up").length;
}

// A box that scrolls must be reachable by keyboard; one that does not is only in the way.
function reachable() {
  for (const box of document.querySelectorAll(".scroll")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

// Ages are told by the node's clock, not by the one of whoever looks.
function nodeTime(response) {
  const said = Date.parse(response.headers.get("date") ?? "");
  return (isFinite(said) ? said : Date.now()) / 1000;
}

async function ask(signal) {
  const response = await fetch("api/v1/status", {signal, cache: "no-store"});
  if (!response.ok) throw new Unusable(`the answer is HTTP ${response.status}`);
  const answer = await response.json().catch(error => {
    if (error.name === "AbortError") throw error;
    throw new Unusable("the answer is not readable");
  });
  if (typeof answer !== "object" || answer === null || !("sources" in answer))
    throw new Unusable("the answer is not a status");
  return [answer, nodeTime(response)];
}

// What was is a help and no more: without it the page shows what is.
async function lookBack(signal) {
  const now = performance.now();
  if (lookedBack !== null && now - lookedBack < HISTORY_PERIOD) return;
  lookedBack = now;
  await askHistory(signal).catch(error => { if (error.name === "AbortError") throw error; });
}

function showWhole(answer, now) {
  try {
    return showAnswer(answer, now);
  } catch (error) {
    console.error(error);
    throw new Unusable("this page cannot show the answer");
  }
}

async function poll() {
  const controller = asking = new AbortController();
  const limit = setTimeout(() => controller.abort(), PATIENCE), began = performance.now();
  try {
    const [answer, now] = await ask(controller.signal);
    await lookBack(controller.signal);
    if (controller !== asking) return; // the page was hidden meanwhile
    const sick = showWhole(answer, now);
    lostSince = null;
    answered = new Date();
    connection("live", "Live");
    showAsOf(answered);
    title(sick);
  } catch (error) {
    if (controller !== asking) return;
    lost(error);
  } finally {
    clearTimeout(limit);
    if (controller === asking)
      timer = setTimeout(poll, Math.max(250, PERIOD - (performance.now() - began)));
  }
}

function pause() {
  clearTimeout(timer);
  asking?.abort();
  asking = null;
  if (lostSince === null) connection("paused", "Paused while hidden");
}

function start() {
  if (document.hidden) pause();
  else if (asking === null) poll();
}

byId("node").textContent = location.host;
byId("lead").textContent = "Waiting for the first answer.";
connection("new", "Connecting");
title(0);
document.addEventListener("visibilitychange", start);
addEventListener("resize", reachable);
start();
