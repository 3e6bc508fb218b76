// The peer graph on a canvas: a force layout that goes on from where it was, whatever picture comes next.
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import { clean, short } from "./format.js";

export const COLOURS = ["#2f6fed", "#e0762b", "#1f9d68", "#c2408f", "#7b61ff", "#b08900", "#0d9bb5", "#d1495b", "#6b8e23", "#8d6e63"];
const LABELS_UP_TO = 60;
const FRESH = 6; // seconds during which an exchange shines

export const groupOf = (peer) => (peer.community ? `community ${short(peer.community)}` : peer.circle ?? "");

export function similarityColour(value, dark) {
  if (value == null) return dark ? "#5b6b80" : "#aab4c2";
  const level = Math.max(0, Math.min(1, value));
  return `hsl(${220 - 190 * level} 70% ${dark ? 62 : 46}%)`;
}

export class Graph {
  constructor(canvas, onSelect) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.onSelect = onSelect;
    this.nodes = new Map();
    this.links = [];
    this.view = { x: 0, y: 0, scale: 1 };
    this.selected = null;
    this.frames = [];
    this.groups = [];
    this.simulation = forceSimulation([])
      .force("charge", forceManyBody().strength((node) => (node.me ? -320 : -160)).distanceMax(420))
      .force("link", forceLink([]).id((node) => node.id).distance(95).strength(0.12))
      .force("collide", forceCollide((node) => node.radius + 5))
      .force("x", forceX((node) => this.home(node).x).strength(0.06))
      .force("y", forceY((node) => this.home(node).y).strength(0.08))
      .on("tick", () => this.draw());
    this.listen();
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  // Groups stand around a ring, each in its place; without groups everybody is drawn to the middle.
  home(node) {
    const at = this.groups.indexOf(node.group);
    if (this.groups.length < 2 || at < 0) return { x: 0, y: 0 };
    const angle = (2 * Math.PI * at) / this.groups.length;
    const reach = 90 + 16 * Math.sqrt(this.nodes.size);
    return { x: reach * Math.cos(angle), y: 0.7 * reach * Math.sin(angle) };
  }

  show(picture) {
    const before = this.nodes;
    this.time = picture.time;
    this.nodes = new Map(
      picture.peers.map((peer) => {
        const node = before.get(peer.id) ?? { id: peer.id, ...this.birthplace(before.size) };
        return [peer.id, Object.assign(node, { peer, me: peer.me, group: groupOf(peer), radius: peer.me ? 13 : 9 })];
      }),
    );
    this.groups = [...new Set([...this.nodes.values()].map((node) => node.group))].sort();
    this.links = picture.exchanges
      .filter((edge) => this.nodes.has(edge.one) && this.nodes.has(edge.other))
      .map((edge) => ({ source: edge.one, target: edge.other, edge }));
    const moved = before.size !== this.nodes.size || [...this.nodes.keys()].some((id) => !before.has(id));
    this.simulation.nodes([...this.nodes.values()]);
    this.simulation.force("link").links(this.links);
    if (moved || this.links.length !== this.linksBefore) this.simulation.alpha(0.6).restart();
    this.linksBefore = this.links.length;
    this.draw();
  }

  birthplace(count) {
    const angle = count * 2.4 + this.nodes.size;
    return { x: 160 * Math.cos(angle) + this.nodes.size, y: 120 * Math.sin(angle) };
  }

  colour(node) {
    return COLOURS[Math.max(0, this.groups.indexOf(node.group)) % COLOURS.length];
  }

  draw() {
    const begun = performance.now();
    const { canvas, pen, view } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
    }
    const dark = document.documentElement.dataset.theme === "dark";
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.translate(width / 2 + view.x, height / 2 + view.y);
    pen.scale(view.scale, view.scale);
    this.drawLinks(dark);
    this.drawNodes(dark);
    this.frames.push(performance.now() - begun);
    if (this.frames.length > 600) this.frames.shift();
  }

  drawLinks(dark) {
    const { pen } = this;
    for (const { source, target, edge } of this.links) {
      if (source.x == null || target.x == null) continue;
      pen.strokeStyle = similarityColour(edge.similarity, dark);
      pen.globalAlpha = this.time - edge.last < FRESH ? 0.95 : 0.35;
      pen.lineWidth = Math.min(8, 0.6 + Math.log10(1 + (edge.sent_bytes + edge.received_bytes) / 1000));
      pen.beginPath();
      pen.moveTo(source.x, source.y);
      pen.lineTo(target.x, target.y);
      pen.stroke();
    }
    pen.globalAlpha = 1;
  }

  drawNodes(dark) {
    const { pen } = this;
    const ink = dark ? "#e7ecf3" : "#1c2430";
    const named = this.nodes.size <= LABELS_UP_TO || this.view.scale > 1.6;
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    for (const node of this.nodes.values()) {
      const { peer } = node;
      pen.globalAlpha = peer.present ? 1 : 0.4;
      pen.beginPath();
      pen.arc(node.x, node.y, node.radius, 0, 2 * Math.PI);
      pen.fillStyle = peer.present ? this.colour(node) : dark ? "#171e28" : "#ffffff";
      pen.fill();
      pen.lineWidth = node.id === this.selected ? 4 : peer.me ? 3 : 1.5;
      pen.strokeStyle = node.id === this.selected || peer.me ? ink : dark ? "#0f141b" : "#ffffff";
      if (!peer.present) {
        pen.strokeStyle = this.colour(node);
        pen.setLineDash([3, 3]);
      }
      pen.stroke();
      pen.setLineDash([]);
      if (named || peer.me || node.id === this.selected) {
        pen.fillStyle = ink;
        pen.fillText(clean(peer.name || "(no name)", 24), node.x, node.y + node.radius + 14);
      }
    }
    pen.globalAlpha = 1;
  }

  // ---- hands on it ----

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: (event.clientX - box.left - box.width / 2 - this.view.x) / this.view.scale,
      y: (event.clientY - box.top - box.height / 2 - this.view.y) / this.view.scale,
    };
  }

  under(event) {
    const { x, y } = this.place(event);
    const node = this.simulation.find(x, y, 22);
    return node ?? null;
  }

  listen() {
    const { canvas } = this;
    let held = null;
    let moved = false;
    canvas.addEventListener("pointerdown", (event) => {
      held = { node: this.under(event), x: event.clientX, y: event.clientY };
      moved = false;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return;
      moved ||= Math.hypot(event.clientX - held.x, event.clientY - held.y) > 4;
      if (held.node) {
        const { x, y } = this.place(event);
        Object.assign(held.node, { fx: x, fy: y });
        this.simulation.alphaTarget(0.2).restart();
      } else {
        this.view.x += event.movementX;
        this.view.y += event.movementY;
        this.draw();
      }
    });
    canvas.addEventListener("pointerup", () => {
      if (held?.node) Object.assign(held.node, { fx: null, fy: null });
      this.simulation.alphaTarget(0);
      if (held && !moved) this.select(held.node?.id ?? null);
      held = null;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.view.scale = Math.max(0.15, Math.min(5, this.view.scale * Math.exp(-event.deltaY / 600)));
      this.draw();
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    const ids = [...this.nodes.keys()];
    const at = ids.indexOf(this.selected);
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) this.select(ids[(at + steps[event.key] + ids.length) % ids.length]);
    else if (event.key === "Escape") this.select(null);
    else if (event.key === "+" || event.key === "-") this.view.scale *= event.key === "+" ? 1.2 : 1 / 1.2;
    else return;
    event.preventDefault();
    this.draw();
  }

  select(id) {
    this.selected = id;
    this.onSelect(id);
    this.draw();
  }
}
