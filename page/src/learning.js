// How the learning goes: figures, this node beside the spread of the swarm, and what each round was like.
import { Chart } from "./chart.js";
import { by, clean, definitions, median, number, percent, whole, write } from "./format.js";
import { Asked } from "./store.js";

const SPREAD = [["highest", "--dim", true], ["median", "--dim"], ["lowest", "--dim", true], ["this node", "--accent"]];

export class LearningView {
  constructor(store) {
    this.store = store;
    this.rounds = [];
    this.asked = new Asked("api/rounds", 2, (rounds) => {
      this.rounds = rounds;
      this.perRound();
    });
    const chart = (name, lines, options) => new Chart(by(`chart-${name}`), lines, options);
    this.charts = {
      accuracy: chart("accuracy", SPREAD, { unit: "%", band: [1, 3] }),
      loss: chart("loss", SPREAD, { band: [1, 3] }),
      distance: chart("distance", [["median", "--accent"], ["farthest", "--dim", true], ["nearest", "--dim", true]], { band: [2, 3] }),
      update: chart("update", [["update norm", "--accent"]], { log: true, unit: "%", rounds: true }),
      values: chart("values", [["k: weights sent", "--accent"]], { rounds: true }),
      entries: chart("entries", [["entries that came in", "--good"]], { rounds: true }),
      bytes: chart("bytes", [["sent", "--accent"], ["received", "--good"]], { unit: "kB", rounds: true }),
      steps: chart("steps", [["local steps", "--accent"]], { rounds: true }),
    };
  }

  open() {
    this.asked.open();
  }

  close() {
    this.asked.close();
  }

  show() {
    const learning = this.store.newest?.learning;
    by("charts").hidden = !learning;
    by("no-learning").hidden = Boolean(learning);
    by("figures").hidden = !learning;
    if (!learning) return;
    this.figures(learning);
    this.overTime();
    this.perRound();
  }

  figures(learning) {
    definitions(by("figures"), [
      ["task", clean(learning.task, 40)],
      ["round", whole(learning.rounds)],
      ["accuracy", percent(learning.accuracy)],
      ["test loss", number(learning.test_loss)],
      ["training loss", number(learning.loss)],
      ["update norm", percent(learning.update_norm, 2)],
      ["steps a second", whole(learning.steps_per_second)],
      ["samples", whole(learning.samples)],
      ["parameters", whole(learning.parameters)],
      ["entries of others", whole(learning.entries)],
      ["bridges", whole(learning.bridges ?? 0)],
      ["last merge", clean(learning.merged, 60) || "–"],
    ]);
    const checks = learning.hash_checks ?? 0;
    const equal = checks ? `${whole(checks)} times so far partners with equal entries compared their weights: ${learning.hash_mismatches ? `${whole(learning.hash_mismatches)} differed` : "bit-equal every time"}.` : "";
    write(by("agreement"), equal);
  }

  overTime() {
    const pictures = this.store.pictures.filter((picture) => picture.learning);
    const times = pictures.map((picture) => picture.time);
    const own = (field, factor = 1) => pictures.map(({ learning }) => (learning[field] == null ? null : factor * learning[field]));
    const others = (value, least) => spread(pictures, value, least);
    this.charts.accuracy.draw([times, ...others((peer) => (peer.accuracy == null ? null : 100 * peer.accuracy)), own("accuracy", 100)]);
    this.charts.loss.draw([times, ...others((peer) => peer.loss), own("loss")]);
    const [far, middle, near] = others((peer) => (peer.me || peer.similarity == null ? null : 1 - peer.similarity), 1);
    this.charts.distance.draw([times, middle, far, near]);
  }

  perRound() {
    const rounds = this.rounds;
    const numbers = rounds.map((row) => row.round);
    const line = (value) => rounds.map(value);
    this.charts.update.draw([numbers, line((row) => 100 * row.update_norm)]);
    this.charts.values.draw([numbers, line((row) => row.values || null)]);
    this.charts.entries.draw([numbers, line((row) => row.entries)]);
    this.charts.bytes.draw([numbers, line((row) => row.sent_bytes / 1000), line((row) => row.received_bytes / 1000)]);
    this.charts.steps.draw([numbers, line((row) => row.steps || null)]);
  }
}

// Highest, median and lowest of what the peers that are there say, where at least so many do.
function spread(pictures, value, least = 2) {
  const rows = pictures.map((picture) =>
    picture.peers.filter((peer) => peer.present).map(value).filter((one) => one != null && Number.isFinite(one)).sort((a, b) => a - b),
  );
  const pick = (choose) => rows.map((row) => (row.length < least ? null : choose(row)));
  return [pick((row) => row.at(-1)), pick(median), pick((row) => row[0])];
}
