// Training runs: what share of the peak is used, where the rest goes, and what limits a run.

import {bar, byId, body, drawing, keep, make, renew, row, show, showFacts} from "./dom.js";
import {series, showLine} from "./history.js";
import {dollars, figure, grouped, list, names, number, ranges, record, scaled, share, span, word,
  words} from "./words.js";

const SHOWN = 0.0005; // of the peak: what is lost below this is named without a bar of its own
const ARC = Math.PI * 50;

export function showRuns(runs, diagnoses) {
  const box = byId("runs");
  byId("training").hidden = !runs.length && !diagnoses.length;
  byId("no-runs").hidden = runs.length > 0;
  keep(box, 0, runs, (run, i) => word(run.run) || i, build, (card, run) =>
    showRun(card, run, diagnoses.find(one => one.run === run.run) ?? {}));
  showDiagnoses(diagnoses);
}

function build() {
  const card = make("article", "run"), parts = {};
  for (const [name, tag, className] of [["head", "div", "run-head"], ["mfu", "div", "mfu"],
    ["falls", "div", "falls"], ["facts", "dl", "facts tight"]]) {
    parts[name] = make(tag, className);
    card.append(parts[name]);
  }
  card.parts = parts;
  return card;
}

function showRun(card, run, diagnosis) {
  const {head, mfu, falls, facts} = card.parts;
  card.dataset.run = word(run.run);
  const about = [word(run.framework), word(run.model_name), word(run.precision),
    number(run.world_size) === null ? "" : `${figure(run.world_size)} ranks`,
    list(run.gpus).length ? `GPUs ${ranges(list(run.gpus))} here` : ""].filter(Boolean);
  renew(head, [run.run, about, run.stalled], () => {
    const title = make("h3", "text", word(run.run) || "a run without a name");
    const line = make("p", "sub text", about.join(" \u00b7 "));
    return number(run.stalled) ? [title, make("p", "bad", "stalled: no step for a long time"), line]
      : [title, line];
  });
  showMfu(mfu, run, diagnosis);
  showFalls(falls, run);
  showNumbers(facts, run);
}

// ------------------------------------------------------------ the gauge

function showMfu(cell, run, diagnosis) {
  const all = list(run.mfu).map(record), head = all[0] ?? {}, ratio = number(head.ratio);
  const others = all.slice(1).map(one => `${word(one.convention)} ${share(number(one.ratio), 1)}`);
  const peak = number(run.peak_flops_per_gpu), withheld = list(run.withheld).map(String);
  const said = [ratio, head.convention, head.peak, peak, others, withheld, diagnosis];
  const values = series("train_mfu_ratio", {run: word(run.run), convention: word(head.convention),
    peak: word(head.peak)});
  renew(cell, [...said, values.length, values.at(-1)], () => {
    if (ratio === null) return [make("p", "", "MFU is not known"),
      make("p", "sub", withheld.map(words).join(", ") || "nothing to compute it from"),
      limit(diagnosis)];
    const spark = make("div", "spark-row");
    showLine(spark, "", "", values, {write: value => share(value, 1)});
    return [dial(ratio), make("p", "sub", `${word(head.convention)}, of ${scaled(peak, "FLOP/s")
      ?? "the peak"} (${word(head.peak)})`),
      make("p", "sub", others.join(" \u00b7 ")), spark, limit(diagnosis)];
  });
}

function dial(ratio) {
  const svg = drawing("dial"), value = Math.min(1, Math.max(0, ratio));
  svg.querySelector("title").textContent = `MFU ${share(ratio, 1)}`;
  svg.querySelector(".value").style.strokeDasharray = `${ARC * value} ${ARC}`;
  svg.querySelector("text").textContent = share(ratio, 1);
  return svg;
}

function limit(diagnosis) {
  const bottleneck = word(diagnosis.bottleneck), p = make("p", "limit");
  if (!bottleneck) return p;
  p.append(make("span", "sub", "Diagnosis"), make("strong", "", words(bottleneck)));
  p.append(diagnosis.confirmed === true ? ", borne out by what is measured"
    : diagnosis.confirmed === false ? ", not borne out by what is measured" : "");
  return p;
}

// ------------------------------------------------------------ the waterfall

function showFalls(box, run) {
  const head = number(record(list(run.mfu)[0]).ratio);
  const losses = list(run.losses).map(record).filter(one => number(one.ratio) !== null);
  renew(box, [head, losses], () => head === null || !losses.length ? [] : [waterfall(head, losses)]);
}

function waterfall(mfu, losses) {
  const table = make("table", "waterfall"), tbody = make("tbody");
  table.append(make("caption", "", "From the peak to MFU, in shares of the peak"), tbody);
  const large = losses.filter(one => Math.abs(one.ratio) >= SHOWN);
  const lost = new Set(large.map(one => one.cause));
  const none = losses.filter(one => !lost.has(one.cause)).map(one => words(word(one.cause)));
  let left = 1;
  tbody.append(step("peak", "", 1, bar(1, 0, "peak")));
  for (const {cause, evidence, ratio} of large) {
    tbody.append(step(words(word(cause)), word(evidence), -ratio, bar(left, left - ratio, "loss")));
    left -= ratio;
  }
  tbody.append(step("MFU", "", mfu, bar(mfu, 0, "rest")));
  if (!none.length) return table;
  const box = make("div");
  box.append(table, make("p", "after", `Nothing lost to: ${names([...new Set(none)])}.`));
  return box;
}

function step(name, evidence, ratio, drawn) {
  const tr = make("tr"), head = make("th", "", name), figureCell = make("td", "number");
  head.scope = "row";
  if (evidence) head.append(" ", make("span", "evidence", evidence));
  const sign = ratio < 0 ? "\u2212" : "";
  figureCell.textContent = `${sign}${share(Math.abs(ratio), 1)}`;
  const cell = make("td", "drawn");
  cell.append(drawn);
  tr.append(head, cell, figureCell);
  return tr;
}

// ------------------------------------------------------------ the numbers

function showNumbers(dl, run) {
  const at = {run: word(run.run)}, step = number(run.step);
  const slow = list(run.slowest).map(record)[0] ?? {};
  const rate = number(run.tokens_per_second), each = number(run.tokens_per_second_per_gpu);
  const drawn = (name, write) => (dd, text, sub) => showLine(dd, text, sub, series(name, at), {write});
  const left = number(run.remaining_seconds);
  showFacts(dl, [
    ["Tokens", scaled(rate, "/s"), each === null ? "" : `${figure(Math.round(each))} each GPU`,
      drawn("train_tokens_per_second", value => scaled(value, "tokens/s"))],
    ["Step time", span(number(run.step_seconds)), step === null ? "" : `step ${figure(step)}`,
      drawn("train_step_median_seconds", span)],
    ["Loss", number(run.loss) === null ? null : grouped(run.loss, 3), "",
      drawn("train_loss", value => grouped(value, 3))],
    ["Goodput", share(number(run.goodput_ratio)), lost(run)],
    ["Communication", share(number(run.exposed_communication_ratio)), "of a step, exposed"],
    ["Slowest rank", word(slow.rank) || null, `${share(number(slow.score), 1) ?? ""} behind`],
    ["Elapsed", span(number(run.elapsed_seconds)), left === null ? "" : `${span(left)} left`],
    ["Cost on this node", dollars(number(run.dollars)), number(run.projected_dollars) === null ? ""
      : `the whole run in the end ${dollars(run.projected_dollars)}`],
  ]);
}

function lost(run) {
  const found = Object.entries(record(run.lost_seconds)).filter(([, s]) => number(s) >= 1)
    .sort((a, b) => b[1] - a[1]).slice(0, 2);
  return found.map(([cause, seconds]) => `${words(cause)} ${span(seconds)}`).join(", ");
}

// ------------------------------------------------------------ diagnosis

function showDiagnoses(diagnoses) {
  const table = byId("diagnoses");
  byId("diagnosis").hidden = !diagnoses.length;
  keep(table, 2, diagnoses, (one, i) => `${i} ${word(one.run)}`, () => body(row(table)),
    (tbody, one) => showDiagnosis(tbody.rows[0].cells, one));
}

function showDiagnosis(cells, one) {
  const [run, bottleneck, seen, utilization, memory, communication] = cells;
  const signals = record(one.signals), sure = one.confirmed;
  show(run, word(one.run) || "GPUs without a run");
  show(bottleneck, words(word(one.bottleneck)) || null,
    sure === true ? "borne out by what is measured"
      : sure === false ? "not borne out by what is measured" : "");
  show(seen, names(list(one.causes).map(String).map(words)) || "nothing");
  show(utilization, share(number(signals.gpu_utilization)));
  show(memory, share(number(signals.memory_used)));
  show(communication, share(number(signals.communication)));
}
