// How a train job goes: figures, this node compared with the swarm, and each round.
import { Chart } from "./chart.js";
import { Curves, spread, withGaps } from "./curves.js";
import { by, clean, figure, number, percent, smallShare, whole, write } from "./format.js";
import { label, reported } from "./glossary.js";
import { Asked } from "./store.js";
import { definitions } from "./tables.js";

export class LearningView {
  constructor(store) {
    this.store = store;
    this.rounds = [];
    this.job = undefined; // whose rounds these are
    this.asked = new Asked(() => store.address("api/rounds"), 2, (rounds) => {
      this.rounds = rounds;
      this.perRound();
    });
    const chart = (name, lines, options) => new Chart(by(`chart-${name}`), lines, options);
    this.curves = new Curves(by("chart-accuracy"), by("chart-loss"));
    this.charts = {
      distance: chart("distance", [["median", "--accent"], ["farthest", "--amber", "dashed"], ["nearest", "--good", "dotted"]], { axis: "distance, log scale", log: true, band: [2, 3] }),
      update: chart("update", [[label("update_norm"), "--accent"]], { axis: "%, log scale", log: true, unit: "%", rounds: true }),
      values: chart("values", [[label("merge.values"), "--accent"]], { axis: "weights", counts: true, rounds: true }),
      entries: chart("entries", [[label("merge.entries"), "--good"]], { axis: "entries", counts: true, rounds: true }),
      bytes: chart("bytes", [[label("traffic.sent_bytes"), "--accent"], [label("traffic.received_bytes"), "--good"]], { axis: "kB a round", unit: "kB", rounds: true }),
      steps: chart("steps", [[label("steps"), "--accent"]], { axis: "steps", counts: true, rounds: true }),
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
    if (!trains) return write(by("no-learning"), status ? `The job ${clean(this.store.job, 40)} trains no model. Its figures are on the tab Jobs.` : "This node trains nothing. It only keeps in touch with its peers.");
    this.figures(status, status.state);
    this.overTime();
    this.perRound();
  }

  figures(status, state) {
    const several = Object.keys(this.store.latest.jobs).length > 1;
    const few = status.test_samples < status.test_available;
    definitions(by("figures"), [
      several ? ["job", `${clean(this.store.job, 40)}: ${clean(status.task, 40)}`] : ["task", clean(status.task, 40)],
      ["round", whole(state.round)],
      ["accuracy", percent(state.accuracy)],
      ["test_loss", number(status.test_loss)],
      ...(state.figures ?? []).map((one) => [reported(one), figure(one.value, one.unit, this.store.latest)]),
      ["loss", number(state.loss)],
      ["update_norm", smallShare(state.update_norm)],
      ["test_samples", few ? `${whole(status.test_samples)} of ${whole(status.test_available)}` : whole(status.test_samples || null)],
      ["samples", whole(status.samples || null), "samples trained on"],
      ["parameters", whole(status.parameters)],
      ["steps_per_second", state.steps_per_second == null ? "–" : `${whole(state.steps_per_second)} steps/s`],
      ["entries", whole(status.entries)],
      ["merged", clean(status.merged, 60) || "–"],
    ]);
    const written = (status.tables ?? []).flatMap((table) => [table.title, ...table.rows.map((row) => row.join(" "))]);
    by("written").hidden = !written.length;
    write(by("written"), written.map((line) => clean(line, 200)).join("\n"));
    const { hash_checks: checks, hash_mismatches: differed } = status;
    const result = differed ? `${whole(differed)} times they differed` : "bit-equal every time";
    write(by("agreement"), checks ? `${whole(checks)} times so far partners with equal entries compared their weights: ${result}.` : "");
  }

  overTime() {
    const { job } = this.store;
    const pictures = this.store.pictures.filter((picture) => picture.jobs[job]);
    this.curves.draw(pictures, job);
    const distance = (peer) => (peer.me || peer.similarity == null ? null : 1 - peer.similarity);
    const shown = withGaps(pictures.map((picture) => this.store.ofJob(picture)));
    const [farthest, middle, nearest] = spread(shown, `distance ${job}`, distance, 1);
    this.charts.distance.draw([shown.map((picture) => picture.time), middle, farthest, nearest]);
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
