// Small line charts that are kept and fed anew as long as the theme stays the same.
import uPlot from "uplot";
import { clock } from "./format.js";

const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const HEIGHT = 190;
const MINUTE = 60;

export class Chart {
  // `lines`: [label, colour variable, dashed?]; `band`: two of them (1, 2, …) between which it is shaded.
  constructor(place, lines, { unit = "", log = false, rounds = false, band = null, height = HEIGHT } = {}) {
    Object.assign(this, { place, lines, unit, log, rounds, band, height, plot: null, theme: "" });
  }

  draw(data) {
    const width = this.place.clientWidth;
    const enough = data[0].length > 1 && data.slice(1).some((line) => line.some((value) => value != null));
    this.place.classList.toggle("waiting", !enough);
    if (!width || !enough) return;
    if (this.log) data = [data[0], ...data.slice(1).map((line) => line.map((value) => (value > 0 ? value : null)))];
    const theme = document.documentElement.dataset.theme;
    if (!this.plot || this.theme !== theme) {
      this.plot?.destroy();
      this.theme = theme;
      this.plot = new uPlot(this.options(width), data, this.place);
      this.plot.ctx.canvas.setAttribute("aria-hidden", "true"); // caption and legend say the same as text
    } else {
      if (this.plot.width !== width) this.plot.setSize({ width, height: this.height });
      this.plot.setData(data);
    }
    if (this.plot.cursor.idx == null) this.plot.setLegend({ idx: data[0].length - 1 }, false); // the latest, unless one is pointed at
  }

  options(width) {
    const axis = { stroke: ink("--dim"), font: "11px system-ui, sans-serif", grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false } };
    const words = (value) => (value == null ? "–" : `${value.toLocaleString("en", { maximumSignificantDigits: 3 })}${this.unit && ` ${this.unit}`}`);
    const line = ([label, colour, dashed]) => ({
      label, stroke: ink(colour), width: dashed ? 1 : 2, dash: dashed ? [4, 3] : undefined, spanGaps: true, points: { show: false }, value: (_, value) => words(value),
    });
    const short = (_, values) => values.map((value) => (value == null ? "" : Number(value.toPrecision(6)).toLocaleString("en", { notation: "compact", maximumSignificantDigits: 4 })));
    return {
      width,
      height: this.height,
      padding: [8, 24, 0, 0],
      scales: { x: { time: !this.rounds }, y: { distr: this.log ? 3 : 1 } },
      series: [this.rounds ? { label: "round" } : { label: "at", value: (_, time) => (time == null ? "–" : clock(time)) }, ...this.lines.map(line)],
      bands: this.band ? [{ series: this.band, fill: `color-mix(in srgb, ${ink("--accent")} 12%, transparent)` }] : [],
      axes: [{ ...axis, size: 28, space: 70, values: this.rounds ? undefined : times }, { ...axis, size: 52, values: this.log ? undefined : short }],
      cursor: { points: { size: 6 } },
      legend: { live: true },
    };
  }
}

// Hours and minutes, and seconds where they matter.
function times(_, marks, __, ___, step) {
  return marks.map((time) => (step < MINUTE ? clock(time) : clock(time).slice(0, 5)));
}
