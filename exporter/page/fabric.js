// The fabric: ports and what is wrong with them, and how GPUs and NICs lie to each other.

import {byId, body, keep, make, renew, row, show, stateOf} from "./dom.js";
import {series, showLine} from "./history.js";
import {counts, list, names, number, plain, ranges, record, scaled, share, word} from "./words.js";

const STATES = new Map([[1, "down"], [2, "initializing"], [3, "armed"], [4, "active"],
  [5, "active, deferred errors"]]);
const MOST = 20; // GPUs in the matrix

export function showFabric(fabric) {
  const ports = list(fabric.ports).map(record), topology = record(fabric.topology);
  byId("fabric").hidden = !ports.length && !list(topology.nearest).length;
  const table = byId("port-table");
  table.hidden = !ports.length;
  keep(table, 2, ports, port => `${word(port.device)} ${word(port.port)}`, () => body(row(table)),
    (tbody, port) => {
      tbody.dataset.port = word(port.device);
      showPort(tbody.rows[0].cells, port);
    });
  showFaults(fabric, topology);
  showMatrix(list(topology.gpus).map(record));
  showNearest(list(topology.nearest).map(record));
}

function showPort(cells, port) {
  const [name, state, link, receive, transmit, errors] = cells;
  const labels = {device: word(port.device), port: word(port.port)};
  const rate = number(port.rate_bytes_per_second);
  show(name, labels.port ? `${labels.device}/${labels.port}` : labels.device,
    word(port.netdev) === labels.device ? "" : word(port.netdev));
  show(link, rate === null ? word(port.link_layer) || null : plain(rate * 8 / 1e9, "Gb/s"),
    rate === null ? "" : word(port.link_layer));
  showState(state, port);
  showRate(receive, number(port.receive_utilization_ratio), rate,
    series("nic_receive_bytes_per_second", labels));
  showRate(transmit, number(port.transmit_utilization_ratio), rate,
    series("nic_transmit_bytes_per_second", labels));
  const found = counts(port.errors);
  errors.classList.toggle("none", !found.length);
  renew(errors, found, () => found.length ? found.slice(0, 4).map(text => make("span", "", text)) : ["0"]);
}

function showState(cell, port) {
  const up = number(port.up), expected = number(port.expected_up), state = number(port.state);
  const kind = up === null ? "other" : up ? "up" : expected === 0 ? "waiting" : "failed";
  const text = up === null ? "not known" : up ? "up" : expected === 0 ? "down, as expected" : "down";
  const more = up && state !== null && state !== 4 ? STATES.get(state) ?? `state ${state}` : "";
  renew(cell, [kind, text, more], () =>
    [stateOf(kind, text), ...(more ? [make("span", "sub", more)] : [])]);
}

function showRate(cell, ratio, rate, values) {
  const last = values.at(-1) ?? (ratio === null || rate === null ? null : ratio * rate);
  showLine(cell, scaled(last, "B/s"), ratio === null || ratio < 0.001 ? "" : share(ratio, 0), values,
    {write: value => scaled(value, "B/s"), most: rate});
}

function showFaults(fabric, topology) {
  const found = [
    ...list(fabric.missing).map(device => [String(device), "is missing: it was there since the boot"]),
    ...list(topology.faults).map(record).map(one => [word(one.about), word(one.what)]),
    ...list(fabric.nccl).map(record).map(one =>
      [word(one.run), `NCCL's settings: ${word(one.kind).replaceAll("_", " ")}`]),
  ];
  const box = byId("fabric-faults");
  box.hidden = !found.length;
  renew(box, found, () => found.slice(0, 24).map(([about, what]) => {
    const li = make("li", "text");
    li.append(make("strong", "", about), ` ${what}`);
    return li;
  }));
}

// ------------------------------------------------------------ topology

function showMatrix(pairs) {
  const box = byId("matrix");
  renew(box, pairs, () => {
    const gpus = [...new Set(pairs.flatMap(({gpu, peer}) => [word(gpu), word(peer)]))]
      .sort((a, b) => a - b);
    const paths = new Set(pairs.map(({path}) => word(path)));
    if (!pairs.length) return [];
    if (paths.size === 1) return [make("p", "",
      `Each two of the GPUs ${ranges(gpus)} are joined by ${[...paths][0]}.`)];
    return gpus.length > MOST ? [make("p", "", `Paths between GPUs: ${names([...paths])}.`)]
      : [matrix(gpus, pairs)];
  });
}

function matrix(gpus, pairs) {
  const table = make("table", "matrix"), head = make("tr");
  const path = new Map(pairs.flatMap(one => [[`${one.gpu} ${one.peer}`, word(one.path)],
    [`${one.peer} ${one.gpu}`, word(one.path)]]));
  table.append(make("caption", "", "How each two GPUs are joined"));
  head.append(scoped("GPU", "col"), ...gpus.map(gpu => scoped(gpu, "col")));
  table.append(head, ...gpus.map(one => {
    const tr = make("tr");
    tr.append(scoped(one, "row"), ...gpus.map(other =>
      make("td", "", one === other ? "\u00b7" : path.get(`${one} ${other}`) ?? "\u2013")));
    return tr;
  }));
  return table;
}

function scoped(text, scope) {
  const th = make("th", "", text);
  th.scope = scope;
  return th;
}

function showNearest(rows) {
  const table = byId("nearest");
  table.hidden = !rows.length;
  keep(table.tBodies[0], 0, rows, one => word(one.gpu), () => {
    const tr = make("tr"), head = make("th");
    head.scope = "row";
    tr.append(head, ...Array.from({length: 4}, () => make("td")));
    return tr;
  }, (tr, one) => {
    const [gpu, device, path, rail, node] = tr.cells;
    show(gpu, word(one.gpu));
    show(device, word(one.device) || null);
    show(path, word(one.path) || null);
    show(rail, word(one.rail) || null);
    show(node, number(one.numa_node) === null ? null : String(one.numa_node));
  });
}
