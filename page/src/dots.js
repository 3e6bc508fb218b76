// All shards as dots, stacked by confidence. The colour is the most common state other than active, if it is common.
import { ink, whole } from "./format.js";

export const STATES = { active: "--accent", reserve: "--amber", retired: "--quiet", quarantined: "--bad" };
const EDGE = { left: 64, right: 16, top: 12, bottom: 44 };

export function stateOfShard(shard) {
  const share = (state) => (shard.states[state] ?? 0) / Math.max(1, shard.samples);
  const odd = ["quarantined", "retired", "reserve"].filter((state) => share(state) >= 0.15);
  return odd.sort((a, b) => share(b) - share(a))[0] ?? "active";
}

export function stateWords(shard) {
  const parts = Object.entries(shard.states).filter(([, count]) => count > 0);
  if (!parts.length) return "–";
  return parts.length === 1 ? parts[0][0] : parts.map(([state, count]) => `${whole(count)} ${state}`).join(", ");
}

// Where each dot lies: a stack for each bin of confidence; shards without a confidence stand in a stack at the left.
export function piles(shards, width, height) {
  for (let radius = 9; ; radius -= 0.5) {
    const step = 2 * radius + 1.5;
    const columns = Math.max(1, Math.floor((width - EDGE.left - EDGE.right) / step));
    const room = Math.floor((height - EDGE.top - EDGE.bottom) / step);
    const heights = new Map();
    const dots = [...shards].sort((a, b) => rank(a) - rank(b)).map((shard) => {
      const bin = shard.confidence == null ? -1 : Math.min(columns - 1, Math.max(0, Math.floor(shard.confidence * columns)));
      const level = heights.get(bin) ?? 0;
      heights.set(bin, level + 1);
      const x = bin < 0 ? 26 : EDGE.left + (bin + 0.5) * ((width - EDGE.left - EDGE.right) / columns);
      return { shard, x, y: height - EDGE.bottom - radius - 2 - level * step };
    });
    if (Math.max(0, ...heights.values()) <= room || radius <= 1.5) return { dots, radius: Math.max(1, radius) };
  }
}

const rank = (shard) => Object.keys(STATES).indexOf(stateOfShard(shard));

export class Dots {
  constructor(canvas, onChoose) {
    Object.assign(this, { canvas, onChoose, dots: [], radius: 1, shards: [], chosen: null });
    canvas.addEventListener("click", (event) => this.onChoose(this.under(event)?.shard.id ?? null));
    canvas.addEventListener("pointermove", (event) => (canvas.style.cursor = this.under(event) ? "pointer" : "default"));
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(shards, chosen) {
    Object.assign(this, { shards, chosen });
    const { canvas } = this;
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, window.devicePixelRatio || 1];
    if (!width) return;
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    Object.assign(this, piles(shards, width, height));
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.axis(pen, width, height);
    const colours = Object.fromEntries(Object.entries(STATES).map(([state, name]) => [state, ink(name)]));
    for (const dot of this.dots) this.dot(pen, dot, colours[stateOfShard(dot.shard)]);
  }

  dot(pen, { shard, x, y }, colour) {
    pen.beginPath();
    pen.arc(x, y, shard.here ? this.radius : Math.max(0.5, this.radius - 1), 0, 2 * Math.PI);
    pen.fillStyle = pen.strokeStyle = colour;
    pen.lineWidth = 1.5;
    if (shard.here) pen.fill();
    else pen.stroke();
    if (shard.id !== this.chosen) return;
    pen.beginPath();
    pen.arc(x, y, this.radius + 3, 0, 2 * Math.PI);
    pen.strokeStyle = ink("--ink");
    pen.lineWidth = 2;
    pen.stroke();
  }

  axis(pen, width, height) {
    const base = height - EDGE.bottom;
    pen.strokeStyle = ink("--line");
    pen.fillStyle = ink("--dim");
    pen.font = "11px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.beginPath();
    pen.moveTo(EDGE.left, base);
    pen.lineTo(width - EDGE.right, base);
    pen.stroke();
    for (const value of [0, 0.25, 0.5, 0.75, 1]) {
      pen.fillText(String(value), EDGE.left + value * (width - EDGE.left - EDGE.right), base + 18);
    }
    pen.fillText("confidence, 0 to 1", (EDGE.left + width - EDGE.right) / 2, base + 36);
    if (this.dots.some(({ shard }) => shard.confidence == null)) pen.fillText("not yet", 28, base + 18);
  }

  under(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    return this.dots.find((dot) => Math.hypot(dot.x - x, dot.y - y) <= this.radius + 2);
  }

  key(event) {
    const step = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
    if (!step && event.key !== "Escape") return;
    event.preventDefault();
    const order = [...this.dots].sort((a, b) => a.x - b.x || b.y - a.y);
    const at = order.findIndex(({ shard }) => shard.id === this.chosen);
    this.onChoose(step ? order.at((at + step) % order.length)?.shard.id : null);
  }
}
