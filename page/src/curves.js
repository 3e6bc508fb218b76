// Accuracy and loss over time: this node compared with the swarm.
import { Chart } from "./chart.js";
import { flat, inJob, median } from "./format.js";

const LINES = [["highest", "--dim", true], ["median", "--dim"], ["lowest", "--dim", true], ["this node", "--accent"]];
const found = new WeakMap(); // by picture; each is computed once

export class Curves {
  constructor(accuracy, loss, options = {}) {
    this.accuracy = new Chart(accuracy, LINES, { unit: "%", band: [1, 3], ...options });
    this.loss = new Chart(loss, LINES, { band: [1, 3], ...options });
  }

  draw(pictures, job) {
    const times = pictures.map((picture) => picture.time);
    for (const [field, factor] of [["accuracy", 100], ["loss", 1]]) {
      const scaled = (state) => (state?.[field] == null ? null : factor * state[field]);
      const own = pictures.map((picture) => scaled(flat(picture.jobs[job]?.state)));
      this[field].draw([times, ...spread(pictures, `${field} ${job}`, (peer) => scaled(inJob(peer, job))), own]);
    }
  }
}

// The highest, median and lowest value of the present peers in each picture, null where fewer than `least` have one.
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
