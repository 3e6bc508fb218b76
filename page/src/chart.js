// Small line charts that are kept and fed anew as long as the theme stays the same.
import uPlot from "uplot";
import { clock, ink, scientific } from "./format.js";

const HEIGHT = 200;
const [MINUTE, DAY] = [60, 86400];
const FONT = "11px system-ui, sans-serif";
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, DAY, 2 * DAY, 7 * DAY, 28 * DAY]; // seconds between labels
const WHOLE = Array.from({ length: 30 }, (_, at) => [1, 2, 5][at % 3] * 10 ** Math.floor(at / 3)); // steps between counts
const DASHES = { solid: undefined, dashed: [6, 4], dotted: [2, 3] };

export class Chart {
  // `lines`: [label, colour variable, "dashed" or "dotted"]; `band`: two of them (1, 2, …) between which it is shaded;
  // `axis`: what the vertical axis counts, with its unit; `rounds`: the horizontal one counts rounds, else it is time.
  // `most`: no value is above it, and there is no need to show 0; `counts`: only whole numbers are marked.
  constructor(place, lines, { axis = "", unit = "", log = false, rounds = false, counts = false, band = null, most = null, height = HEIGHT } = {}) {
    Object.assign(this, { place, lines, axis, unit, log, rounds, counts, band, most, height, plot: null, theme: "" });
  }

  draw(data) {
    const width = this.place.clientWidth;
    const enough = data.slice(1).some((line) => line.filter((value) => value != null).length > 1); // for a line
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
    const axis = {
      stroke: ink("--dim"), font: FONT, grid: { stroke: ink("--line"), width: 1 }, ticks: { show: false },
      labelFont: FONT, labelSize: 15, labelGap: 2,
    };
    const line = ([label, colour, dash = "solid"]) => ({
      label, stroke: ink(colour), width: dash === "solid" ? 2 : 1.5, dash: DASHES[dash], spanGaps: false, points: { show: false }, value: (_, value) => this.words(value),
    });
    const dashOf = (_, at) => this.lines[at - 1]?.[2] ?? "solid";
    return {
      width,
      height: this.height,
      padding: [10, 34, 0, 4], // room for half of the last label
      scales: { x: { time: !this.rounds }, y: this.log ? { distr: 3 } : this.most ? { range: (_, low, high) => within(low, high, this.most) } : {} },
      series: [this.rounds ? { label: "round" } : { label: "at", value: (_, time) => (time == null ? "–" : clock(time)) }, ...this.lines.map(line)],
      bands: this.band ? [{ series: this.band, fill: `color-mix(in srgb, ${ink("--accent")} 12%, transparent)` }] : [],
      axes: [
        { ...axis, label: this.rounds ? "round" : "time of day", size: 26, space: 70, values: this.rounds ? plain : times, ...(!this.rounds && { incrs: TIMES }) },
        { ...axis, label: this.axis, size: 50, space: 0.13 * this.height, ...(this.counts && { incrs: WHOLE }), ...(this.log && { splits: (_, __, low, high) => powers(low, high), filter: (_, splits) => splits }), values: (_, values) => values.map((value) => (value == null ? "" : tick(value))) },
      ],
      cursor: { points: { size: 6 } },
      legend: { live: true, markers: { width: 2, dash: dashOf, fill: () => "transparent" } },
    };
  }

  words(value) {
    if (value == null) return "–";
    const small = value !== 0 && Math.abs(value) < 0.001;
    const shown = small ? scientific(value) : value.toLocaleString("en", { maximumSignificantDigits: 3 });
    return `${shown}${this.unit && ` ${this.unit}`}`;
  }
}

// Where a log axis has its lines: at powers of ten, few where there are many, and between them where there are few.
function powers(low, high) {
  const [first, last] = [Math.floor(Math.log10(low) + 1e-9), Math.ceil(Math.log10(high) - 1e-9)];
  const step = Math.max(1, Math.ceil((last - first) / 4));
  const between = last - first < 3 ? [1, 2, 5] : [1];
  const marks = [];
  for (let power = first; power <= last; power += step) for (const factor of between) marks.push(factor * 10 ** power);
  return marks.filter((mark) => mark >= 0.999 * low && mark <= 1.001 * high);
}

// A range that shows differences of a hundredth of `most` and does not go beyond it.
function within(low, high, most) {
  if (low == null) return [0, most];
  const air = Math.max(0.01 * most, 0.1 * (high - low));
  return [Math.max(0, low - air), Math.min(most, high + air)];
}

const tick = (value) => (value !== 0 && Math.abs(value) < 0.001 ? scientific(value, 2) : Number(value.toPrecision(6)).toLocaleString("en", Math.abs(value) < 1e5 ? {} : { notation: "compact", maximumSignificantDigits: 4 }));
const plain = (_, marks) => marks.map((mark) => (Number.isInteger(mark) ? mark.toLocaleString("en") : ""));

// Hours and minutes, seconds where they matter, the day where there are several.
function times(_, marks, __, ___, step) {
  const days = marks.length > 1 && marks.at(-1) - marks[0] >= DAY;
  return marks.map((time) => {
    const day = new Date(1000 * time).toLocaleDateString("en-GB", { day: "numeric", month: "short" });
    if (step >= DAY) return day;
    const hour = step < MINUTE ? clock(time) : clock(time).slice(0, 5);
    return days ? `${day} ${hour}` : hour;
  });
}
