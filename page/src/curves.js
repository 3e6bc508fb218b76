// Test accuracy and training loss over time: this node compared with all nodes of the run.
import { Chart } from "./chart.js";
import { flat, inJob, median } from "./format.js";

const LINES = [["highest", "--good", "dashed"], ["median", "--dim"], ["lowest", "--amber", "dotted"], ["this node", "--accent"]];
const GAP = 30; // seconds, and three times the usual distance, without a picture: the node was not running
const found = new WeakMap(); // by picture; each is computed once

export class Curves {
  constructor(accuracy, loss, options = {}) {
    this.accuracy = new Chart(accuracy, LINES, { axis: "%", unit: "%", most: 100, band: [1, 3], ...options });
    this.loss = new Chart(loss, LINES, { axis: "loss, log scale", log: true, band: [1, 3], ...options });
  }

  draw(pictures, job) {
    const shown = withGaps(pictures);
    const latest = flat(pictures.at(-1)?.jobs[job]);
    this.accuracy.place.closest("figure").hidden = latest.test_loss != null && flat(latest.state).accuracy == null; // the task has none
    for (const [field, factor] of [["accuracy", 100], ["loss", 1]]) {
      const scaled = (state) => (state?.[field] == null ? null : factor * state[field]);
      const own = shown.map((picture) => scaled(flat(picture.jobs[job]?.state)));
      this[field].draw([shown.map((picture) => picture.time), ...spread(shown, `${field} ${job}`, (peer) => scaled(inJob(peer, job))), own]);
    }
  }
}

// The pictures with an empty one wherever the node was away, so that no line joins what lies on both sides.
export function withGaps(pictures) {
  const steps = pictures.slice(1).map((picture, at) => picture.time - pictures[at].time).sort((a, b) => a - b);
  const most = Math.max(GAP, 3 * (steps[Math.floor(0.9 * steps.length)] ?? 0));
  return pictures.flatMap((picture, at) => (at && picture.time - pictures[at - 1].time > most ? [{ time: (picture.time + pictures[at - 1].time) / 2, peers: [], jobs: {} }, picture] : [picture]));
}

// The highest, median and lowest value of the present nodes in each picture, null where fewer than `least` have one.
export function spread(pictures, name, value, least = 2) {
  const rows = pictures.map((picture) => {
    if (!found.has(picture)) found.set(picture, new Map());
    const known = found.get(picture);
    if (!known.has(name)) known.set(name, range(picture.peers.filter((peer) => peer.present).map(value), least));
    return known.get(name);
  });
  return [0, 1, 2].map((at) => rows.map((row) => row[at]));
}

function range(values, least) {
  const sorted = values.filter((value) => value != null && Number.isFinite(value)).sort((a, b) => a - b);
  return sorted.length < least ? [null, null, null] : [sorted.at(-1), median(sorted), sorted[0]];
}
