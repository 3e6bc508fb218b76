// How the learning goes: figures and four charts over all pictures there are.
import uPlot from "uplot";
import { definitions, number, percent, whole } from "./format.js";

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class LearningView {
  constructor(store) {
    this.store = store;
    this.charts = {};
  }

  show() {
    const learning = this.store.newest?.learning;
    const figures = document.getElementById("figures");
    if (!learning) {
      definitions(figures, [["learning", "nothing: this node only meets the others"]]);
      return;
    }
    definitions(figures, [
      ["task", learning.task],
      ["round", whole(learning.rounds)],
      ["accuracy", percent(learning.accuracy)],
      ["test loss", number(learning.test_loss)],
      ["training loss", number(learning.loss)],
      ["steps a second", whole(learning.steps_per_second)],
      ["samples", whole(learning.samples)],
      ["parameters", whole(learning.parameters)],
      ["entries of others", whole(learning.entries)],
      ["last merge", learning.merged || "–"],
    ]);
    const pictures = this.store.pictures.filter((picture) => picture.learning);
    const times = pictures.map((picture) => picture.time);
    const own = (field) => pictures.map((picture) => picture.learning[field]);
    this.draw("accuracy", [["this node", "--accent"]], [times, own("accuracy")]);
    this.draw(
      "loss",
      [["this node", "--accent"], ["best of the swarm", "--good"], ["median", "--dim"], ["worst", "--bad"]],
      [times, own("loss"), ...spread(pictures)],
    );
    this.draw("update", [["update norm", "--accent"]], [times, own("update_norm")], 3);
    this.draw("traffic", [["sent", "--accent"], ["received", "--good"]], [times, rate(pictures, "sent_bytes"), rate(pictures, "received_bytes")]);
  }

  draw(name, series, data, distribution = 1) {
    const place = document.getElementById(`chart-${name}`);
    const width = place.clientWidth;
    if (!width || data[0].length < 2) return;
    const theme = document.documentElement.dataset.theme;
    const known = this.charts[name];
    if (known && known.theme === theme) {
      if (known.plot.width !== width) known.plot.setSize({ width, height: 200 });
      known.plot.setData(data);
      return;
    }
    known?.plot.destroy();
    const axis = { stroke: ink("--dim"), grid: { stroke: ink("--line"), width: 1 }, ticks: { stroke: ink("--line") } };
    const plot = new uPlot(
      {
        width,
        height: 200,
        scales: { y: { distr: distribution } },
        series: [{}, ...series.map(([label, colour]) => ({ label, stroke: ink(colour), width: 2, spanGaps: true, points: { show: false } }))],
        axes: [axis, { ...axis, size: 56 }],
      },
      data,
      place,
    );
    this.charts[name] = { plot, theme };
  }
}

function spread(pictures) {
  const rows = pictures.map((picture) =>
    picture.peers.map((peer) => peer.loss).filter((loss) => loss != null && Number.isFinite(loss)).sort((a, b) => a - b),
  );
  const pick = (choose) => rows.map((losses) => (losses.length > 1 ? choose(losses) : null));
  return [pick((l) => l[0]), pick((l) => l[Math.floor(l.length / 2)]), pick((l) => l.at(-1))];
}

function rate(pictures, field) {
  return pictures.map((picture, at) => {
    if (!at) return null;
    const before = pictures[at - 1];
    return Math.max(0, picture.traffic[field] - before.traffic[field]) / 1000 / Math.max(0.001, picture.time - before.time);
  });
}
