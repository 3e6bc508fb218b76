// The peer graph: a force layout that goes on from where it was with each new picture; drag, zoom and select.
import { forceCollide, forceLink, forceManyBody, forceSimulation, forceX, forceY } from "d3-force";
import { COLOURS, UNKNOWN, drawGraph } from "./draw.js";
import { called, clean, inJob, short } from "./format.js";

export { COLOURS, similarityColour } from "./draw.js";

const MANY = 150; // peers from which on they are drawn small
const [SMALL, USUAL] = [5.5, 9]; // radii
const FEW = 12; // peers up to which they keep far apart
const MARGIN = 0.09; // of the width, around all peers
const FOLLOW = 0.12; // of the way a frame takes to what fits
const RING = 10; // groups up to which they stand around a ring; more of them fill a disc
const CROWD = 4000; // moves of nodes computed at once for who wants no animation

const takesPart = (peer) => peer.role !== "observer" && peer.role !== "bootstrap";
export const groupOf = (peer, job) => peer.community || inJob(peer, job).circle || "";

// A community is called after the member with the smallest id.
export function communityName(community, picture) {
  const first = picture.peers.find((peer) => peer.id === community);
  const yours = picture.peers.some((peer) => peer.me && peer.community === community);
  return `of ${first ? called(first) : `…${clean(short(community))}`}${yours ? " (yours)" : ""}`;
}

// A circle that formed by itself has a hash for a name; people know it by the member with the smallest id.
export function circleName(circle, picture, job) {
  if (!/^[0-9a-f]{16,}$/.test(circle)) return clean(circle, 24);
  const members = picture.peers.filter((peer) => inJob(peer, job).circle === circle);
  return `of ${called(members.reduce((first, peer) => (peer.id < first.id ? peer : first)))}${members.some((peer) => peer.me) ? " (yours)" : ""}`;
}

export function groupName(group, picture, job) {
  if (picture.peers.some((peer) => peer.community === group)) return `community ${communityName(group, picture)}`;
  const name = circleName(group, picture, job);
  return name.startsWith("of ") ? `circle ${name}` : name;
}

export class Graph {
  constructor(canvas, onSelect) {
    this.canvas = canvas;
    this.pen = canvas.getContext("2d");
    this.onSelect = onSelect;
    this.nodes = new Map();
    this.links = [];
    this.circles = [];
    this.groups = [];
    this.job = undefined; // whose circles are shown; undefined: of each peer's first job
    this.similarity = () => null; // of two peers, where pictures do not say
    this.breadth = 1; // how much wider than high the ring is, so that it fills the canvas
    this.palette = new Map(); // colours of groups; peers in no group are grey
    this.view = { x: 0, y: 0, scale: 1 };
    this.held = false; // the user chose the part that is seen
    this.selected = null;
    this.frames = [];
    this.homes = new Map();
    this.calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.simulation = forceSimulation([])
      .alphaDecay(0.04)
      .force("charge", forceManyBody().strength((node) => -node.radius * (this.nodes.size < FEW ? 60 : 14)).distanceMax(300))
      .force("link", forceLink([]).id((node) => node.id).distance(70).strength((link) => (link.bridge ? 0.001 : 0.05)))
      .force("collide", forceCollide((node) => node.radius + 6))
      .force("x", forceX((node) => this.home(node).x).strength(0.14))
      .force("y", forceY((node) => this.home(node).y).strength(0.14))
      .on("tick", () => this.frame());
    this.listen();
    new ResizeObserver(() => this.resized()).observe(canvas);
  }

  get dark() {
    return this.canvas.closest("[data-theme]")?.dataset.theme === "dark";
  }

  home(node) {
    return this.homes.get(node.place) ?? { x: 0, y: 0 };
  }

  show(picture) {
    const before = this.nodes;
    this.time = picture.time;
    const radius = picture.peers.length > MANY ? SMALL : USUAL;
    this.nodes = new Map(
      picture.peers.map((peer) => {
        const node = before.get(peer.id) ?? { id: peer.id };
        const [group, { circle = "" }] = [groupOf(peer, this.job), inJob(peer, this.job)];
        const size = peer.me ? radius + 3 : peer.role === "node" ? radius : 0.6 * radius;
        return [peer.id, Object.assign(node, { peer, me: peer.me, group, circle, radius: size })];
      }),
    );
    const moved = this.settle([...this.nodes.values()]) || before.size !== this.nodes.size;
    this.links = picture.exchanges
      .filter((edge) => this.nodes.has(edge.one) && this.nodes.has(edge.other))
      .map((edge) => ({ source: edge.one, target: edge.other, edge, similarity: edge.similarity ?? this.similarity(edge.one, edge.other), bridge: apart(this.nodes.get(edge.one), this.nodes.get(edge.other)) }));
    this.simulation.nodes([...this.nodes.values()]);
    this.simulation.force("link").links(this.links);
    this.wake(moved ? 0.5 : 0); // new exchanges alone move nobody: a page that is left open should be idle
  }

  // Communities stand around a ring, their circles around each one's middle; a circle of several communities stands
  // whole with the most common one. True when anything has a new place.
  settle(nodes) {
    const turned = this.turned();
    const members = nodes.filter(({ peer }) => takesPart(peer));
    this.groups = [...new Set(members.map((node) => node.group))].sort();
    this.palette = colours(members.map((node) => node.group), this.palette);
    const communities = new Map(); // by name: its circles, each with its members
    for (const [circle, inside] of gathered(members, (node) => node.circle)) {
      for (const [group, together] of circle ? [[mostCommon(inside.map((node) => node.group)), inside]] : gathered(inside, (node) => node.group)) {
        communities.set(group, [...(communities.get(group) ?? []), together.sort((a, b) => Number(b.group === group) - Number(a.group === group))]);
      }
    }
    this.stand([...communities].sort(([a], [b]) => (a < b ? -1 : 1)), 2.6 * (nodes.length > MANY ? SMALL : USUAL));
    for (const node of nodes) if (!takesPart(node.peer)) node.place = ""; // in the middle
    return this.arrive(nodes) || turned;
  }

  stand(communities, size) {
    const room = (circles) => Math.max(...circles.map((inside) => size * Math.sqrt(inside.length) + 24));
    const largest = Math.max(0, ...communities.map(([, circles]) => room(circles) + extent(circles.length, room(circles))));
    this.homes = new Map();
    this.circles = [];
    communities.forEach(([group, circles], at) => {
      const middle = placed(at, communities.length, largest, this.breadth);
      circles.forEach((inside, index) => {
        const { x, y } = placed(index, circles.length, room(circles), communities.length < 2 ? this.breadth : 1);
        const place = `${group}/${inside[0].circle}`;
        this.homes.set(place, { x: middle.x + x, y: middle.y + y });
        for (const node of inside) node.place = place;
        if (inside.length > 1 && inside[0].circle) this.circles.push(inside);
      });
    });
  }

  // Whether the canvas has got another shape; a hidden one keeps the shape it had.
  turned() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    const breadth = width && height ? Math.max(0.75, Math.min(1.45, Math.sqrt(width / height))) : this.breadth;
    const turned = Math.abs(breadth - this.breadth) > 0.1;
    if (turned) this.breadth = breadth;
    return turned;
  }

  // A canvas of another shape, such as a phone that is turned, is filled anew.
  resized() {
    this.wake(this.settle([...this.nodes.values()]) ? 0.5 : 0);
  }

  arrive(nodes) {
    let moved = false;
    for (const [at, node] of nodes.entries()) {
      if (node.x == null) {
        const home = this.home(node);
        Object.assign(node, { x: home.x + 50 * Math.cos(at * 2.4), y: home.y + 50 * Math.sin(at * 2.4) });
        moved = true;
      } else if (node.settled !== node.place) moved = true;
      node.settled = node.place;
    }
    return moved;
  }

  wake(heat) {
    if (this.calm) {
      if (heat) this.simulation.alpha(1).stop().tick(Math.max(20, Math.min(200, Math.round(CROWD / this.nodes.size))));
      this.frame(true);
    } else if (heat > this.simulation.alpha()) this.simulation.alpha(heat).restart();
    else this.frame();
  }

  colour(node) {
    return takesPart(node.peer) ? this.colourOf(node.group) : UNKNOWN;
  }

  colourOf(group) {
    return this.palette.get(group) ?? UNKNOWN;
  }

  // Move what is seen towards what fits, unless the user chose it.
  fit(width, height, atOnce) {
    if (this.held || !this.nodes.size) return;
    let [left, right, top, bottom] = [Infinity, -Infinity, Infinity, -Infinity];
    for (const { x, y } of this.nodes.values()) {
      [left, right, top, bottom] = [Math.min(left, x), Math.max(right, x), Math.min(top, y), Math.max(bottom, y)];
    }
    const margin = Math.max(36, Math.min(70, MARGIN * width));
    const scale = Math.max(0.15, Math.min(1.5, (width - 2 * margin) / (right - left || 1), (height - 2 * margin) / (bottom - top || 1)));
    const goal = { scale, x: (-scale * (left + right)) / 2, y: (-scale * (top + bottom)) / 2 };
    const part = atOnce || !this.fitted ? 1 : FOLLOW;
    for (const key of ["scale", "x", "y"]) this.view[key] += part * (goal[key] - this.view[key]);
    this.fitted = true;
  }

  frame(atOnce = false) {
    const begun = performance.now();
    const { canvas, pen, view } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width || !height) return;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      atOnce = true;
    }
    this.fit(width, height, atOnce);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.translate(width / 2 + view.x, height / 2 + view.y);
    pen.scale(view.scale, view.scale);
    const colour = (node) => this.colour(node);
    drawGraph(pen, { nodes: [...this.nodes.values()], links: this.links, circles: this.circles, time: this.time, selected: this.selected, scale: view.scale, dark: this.dark, colour, edges: [-width / 2 - view.x, width / 2 - view.x].map((x) => x / view.scale) });
    this.frames.push(performance.now() - begun);
    if (this.frames.length > 600) this.frames.shift();
  }

  // ---- pointer and keyboard ----

  place(event) {
    const box = this.canvas.getBoundingClientRect();
    return {
      x: (event.clientX - box.left - box.width / 2 - this.view.x) / this.view.scale,
      y: (event.clientY - box.top - box.height / 2 - this.view.y) / this.view.scale,
    };
  }

  under(event) {
    const { x, y } = this.place(event);
    return this.simulation.find(x, y, 18 / this.view.scale + 8) ?? null;
  }

  listen() {
    const { canvas } = this;
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { node: this.under(event), x: event.clientX, y: event.clientY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.hover(event);
      held.moved ||= Math.hypot(event.clientX - held.x, event.clientY - held.y) > 4;
      if (held.moved) this.drag(held.node, event);
    });
    canvas.addEventListener("pointerup", () => {
      if (held?.node) Object.assign(held.node, { fx: null, fy: null });
      this.simulation.alphaTarget(0);
      if (held && !held.moved) this.select(held.node?.id ?? null);
      held = null;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 600));
    }, { passive: false });
    canvas.addEventListener("dblclick", () => this.release());
    canvas.addEventListener("keydown", (event) => this.key(event));
  }

  hover(event) {
    const node = this.under(event);
    this.canvas.style.cursor = node ? "pointer" : "grab";
  }

  drag(node, event) {
    if (node) {
      const { x, y } = this.place(event);
      Object.assign(node, { fx: x, fy: y });
      this.simulation.alphaTarget(0.2).restart();
      return;
    }
    this.held = true;
    this.view.x += event.movementX;
    this.view.y += event.movementY;
    this.frame();
  }

  zoom(factor) {
    this.held = true;
    const scale = Math.max(0.15, Math.min(5, this.view.scale * factor));
    const real = scale / this.view.scale;
    Object.assign(this.view, { scale, x: this.view.x * real, y: this.view.y * real });
    this.frame();
  }

  release() {
    this.held = false;
    this.frame(true);
  }

  key(event) {
    const ids = [...this.nodes.keys()];
    const at = ids.indexOf(this.selected);
    const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
    if (event.key in steps) this.select(ids[(at < 0 && steps[event.key] < 0 ? ids.length - 1 : at + steps[event.key] + ids.length) % ids.length]);
    else if (event.key === "Escape") this.select(null);
    else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 1.2 : 1 / 1.2);
    else if (event.key === "0") this.release();
    else return;
    event.preventDefault();
  }

  select(id) {
    this.selected = id;
    this.onSelect(id);
    this.frame();
  }
}

const apart = (one, other) => Boolean(one.circle && other.circle && one.circle !== other.circle);

function gathered(items, key) {
  const found = new Map();
  for (const item of items) found.set(key(item), [...(found.get(key(item)) ?? []), item]);
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
}

// A colour of its own for each of the largest groups, which it keeps as long as it is there. The rest have none.
function colours(names, before) {
  const sizes = gathered(names, (name) => name).map(([name, members]) => [name, members.length]);
  const named = sizes.length > 1 ? sizes.filter(([name]) => name) : sizes;
  const largest = named.sort(([, a], [, b]) => b - a).slice(0, COLOURS.length).map(([name]) => name);
  const kept = new Map([...before].filter(([name]) => largest.includes(name)));
  const free = COLOURS.filter((colour) => ![...kept.values()].includes(colour));
  return new Map(largest.map((name) => [name, kept.get(name) ?? free.shift()]));
}

function mostCommon(names) {
  return gathered(names, (name) => name).reduce((most, one) => (one[1].length > most[1].length ? one : most))[0];
}

// The middle of one of several groups, each of which needs `room` around it: around a ring, or as the seeds of a sunflower.
function placed(at, count, room, breadth) {
  const [reach, angle] = count > RING ? [1.2 * room * Math.sqrt(at + 0.5), 2.4 * at] : [extent(count, room), (2 * Math.PI * at) / count - Math.PI / 2];
  return { x: breadth * reach * Math.cos(angle), y: (reach * Math.sin(angle)) / breadth };
}

// How far from the middle the farthest of them stands.
const extent = (count, room) => (count < 2 ? 0 : count > RING ? 1.2 * room * Math.sqrt(count) : room / Math.sin(Math.PI / Math.max(3, count)));
