// How a train job goes: figures, this node compared with the swarm, and each round.
import { Chart } from "./chart.js";
import { Curves, spread } from "./curves.js";
import { by, clean, definitions, number, percent, whole, write } from "./format.js";
import { Asked } from "./store.js";

export class LearningView {
  constructor(store) {
    this.store = store;
    this.rounds = [];
    this.job = undefined; // whose rounds these are
    this.asked = new Asked(() => `api/rounds?job=${encodeURIComponent(store.job ?? "")}`, 2, (rounds) => {
      this.rounds = rounds;
      this.perRound();
    });
    const chart = (name, lines, options) => new Chart(by(`chart-${name}`), lines, options);
    this.curves = new Curves(by("chart-accuracy"), by("chart-loss"));
    this.charts = {
      distance: chart("distance", [["median", "--accent"], ["farthest", "--dim", true], ["nearest", "--dim", true]], { band: [2, 3] }),
      update: chart("update", [["update norm", "--accent"]], { log: true, unit: "%", rounds: true }),
      values: chart("values", [["k: weights sent", "--accent"]], { rounds: true }),
      entries: chart("entries", [["entries that came in", "--good"]], { rounds: true }),
      bytes: chart("bytes", [["sent", "--accent"], ["received", "--good"]], { unit: "kB", rounds: true }),
      steps: chart("steps", [["local steps", "--accent"]], { rounds: true }),
    };
  }

  open() {
    if (this.job !== this.store.job) this.rounds = [];
    this.job = this.store.job;
    this.asked.open();
  }

  close() {
    this.asked.close();
  }

  show() {
    const { status } = this.store;
    const trains = Boolean(status?.train);
    by("charts").hidden = !trains;
    by("no-learning").hidden = trains;
    by("figures").hidden = !trains;
    if (!trains) return;
    this.figures(status, status.state);
    this.overTime();
    this.perRound();
  }

  figures(status, state) {
    const several = Object.keys(this.store.latest.jobs).length > 1;
    definitions(by("figures"), [
      several ? ["job", `${clean(this.store.job, 40)}: ${clean(status.task, 40)}`, "Choose another on the tab Jobs"] : ["task", clean(status.task, 40)],
      ["round", whole(state.round), "Rounds of local steps so far"],
      ["accuracy", percent(state.accuracy), "Of the merged model on the task's test data"],
      ["test loss", number(status.test_loss), "Of the merged model on the task's test data"],
      ["training loss", number(state.loss), "Mean over the local steps of the latest round"],
      ["update norm", percent(state.update_norm, 2), "Relative change of the shared weights in a round"],
      ["steps a second", whole(state.steps_per_second)],
      ["samples", whole(status.samples), "That this node trains on"],
      ["parameters", whole(status.parameters)],
      ["entries of others", whole(status.entries), "Updates published by other nodes that came in"],
      ["bridges", whole(status.bridges), "Own updates that carried what this circle learned to other circles"],
      ["last merge", clean(status.merged, 60) || "–"],
    ]);
    const { hash_checks: checks, hash_mismatches: differed } = status;
    const result = differed ? `${whole(differed)} times they differed` : "bit-equal every time";
    write(by("agreement"), checks ? `${whole(checks)} times so far partners with equal entries compared their weights: ${result}.` : "");
  }

  overTime() {
    const { job } = this.store;
    const pictures = this.store.pictures.filter((picture) => picture.jobs[job]);
    this.curves.draw(pictures, job);
    const distance = (peer) => (peer.me || peer.similarity == null ? null : 1 - peer.similarity);
    const [farthest, middle, nearest] = spread(pictures, "distance", distance, 1);
    this.charts.distance.draw([pictures.map((picture) => picture.time), middle, farthest, nearest]);
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
