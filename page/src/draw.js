// Draws the peer graph on its canvas. Knows nothing of layout or input.
import { clean } from "./format.js";

export const COLOURS = ["#2f6fed", "#e0762b", "#1f9d68", "#c2408f", "#7b61ff", "#b08900", "#0d9bb5", "#d1495b", "#6b8e23", "#8d6e63"];
export const UNKNOWN = "#8792a2"; // a peer's group
const LABELS_UP_TO = 60;
const FRESH = 6; // seconds for which an exchange is highlighted
const MANY_BRIDGES = 60; // from which on each is drawn fainter
const PADDING = 22; // around the peers of a circle
const STEPS = 16; // shades of similarity
const THEMES = {
  light: { ink: "#1c2430", paper: "#ffffff", low: [203, 190, 232], high: [84, 36, 158], unknown: "#b4bcc8" },
  dark: { ink: "#e7ecf3", paper: "#171e28", low: [70, 62, 104], high: [202, 178, 255], unknown: "#4d5a6c" },
};
const shades = { light: scale(THEMES.light), dark: scale(THEMES.dark) };

function scale({ low, high }) {
  return Array.from({ length: STEPS + 1 }, (_, at) => {
    const parts = low.map((from, channel) => Math.round(from + ((high[channel] - from) * at) / STEPS));
    return `rgb(${parts.join(" ")})`;
  });
}

export function similarityColour(value, dark) {
  const theme = dark ? "dark" : "light";
  if (value == null) return THEMES[theme].unknown;
  return shades[theme][Math.round(STEPS * Math.max(0, Math.min(1, value)))];
}

const mixed = new Map();

// An opaque tint, so that shapes drawn over themselves stay even.
function tint(colour, paper, share) {
  const key = colour + paper + share;
  if (!mixed.has(key)) {
    const part = (hex, at) => parseInt(hex.slice(at, at + 2), 16);
    mixed.set(key, `rgb(${[1, 3, 5].map((at) => Math.round(part(colour, at) * share + part(paper, at) * (1 - share))).join(" ")})`);
  }
  return mixed.get(key);
}

export function drawGraph(pen, { nodes, links, circles, time, selected, scale: zoom, dark, colour, edges }) {
  const theme = THEMES[dark ? "dark" : "light"];
  for (const circle of circles) drawCircle(pen, circle, theme, colour(circle[0]), zoom);
  drawLinks(pen, links, time, dark, selected, zoom);
  drawNodes(pen, nodes, theme, selected, colour, zoom);
  drawNames(pen, nodes, theme, selected, zoom, edges);
}

function drawCircle(pen, members, theme, colour, zoom) {
  const outline = hull(members);
  pen.lineJoin = pen.lineCap = "round";
  for (const [width, style] of [
    [2 * PADDING + 2.4 / zoom, tint(colour, theme.paper, 0.32)],
    [2 * PADDING, tint(colour, theme.paper, 0.09)],
  ]) {
    pen.beginPath();
    outline.forEach(({ x, y }, at) => (at ? pen.lineTo(x, y) : pen.moveTo(x, y)));
    pen.closePath();
    pen.lineWidth = width;
    pen.strokeStyle = pen.fillStyle = style;
    pen.stroke();
    pen.fill();
  }
}

// The convex hull (Andrew's monotone chain).
export function hull(points) {
  const sorted = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
  if (sorted.length < 3) return sorted;
  const turn = (o, a, b) => (a.x - o.x) * (b.y - o.y) - (a.y - o.y) * (b.x - o.x);
  const half = (row) => {
    const kept = [];
    for (const point of row) {
      while (kept.length > 1 && turn(kept.at(-2), kept.at(-1), point) <= 0) kept.pop();
      kept.push(point);
    }
    return kept.slice(0, -1);
  };
  return [...half(sorted), ...half(sorted.reverse())];
}

export const edgeWidth = (edge) => Math.min(7, 0.7 + 0.9 * Math.log10(1 + (edge.sent_bytes + edge.received_bytes) / 2000));

function drawLinks(pen, links, time, dark, selected, zoom) {
  const bridges = links.filter((link) => link.bridge).length;
  const faint = Math.min(0.55, MANY_BRIDGES / Math.max(1, bridges)); // else they would hide the circles
  for (const { source, target, edge, similarity, bridge } of links) {
    const fresh = time - edge.last < FRESH;
    const mine = selected == null || source.id === selected || target.id === selected;
    pen.strokeStyle = similarityColour(similarity, dark);
    const usual = bridge && !source.me && !target.me ? faint : 0.55;
    pen.globalAlpha = !mine ? Math.min(0.12, usual) : selected || (fresh && usual === 0.55) ? 1 : usual;
    pen.lineWidth = Math.max(edgeWidth(edge), (mine && selected ? 1.6 : 0.6) / zoom);
    pen.setLineDash(bridge ? [7 / zoom, 5 / zoom] : []);
    pen.beginPath();
    pen.moveTo(source.x, source.y);
    pen.lineTo(target.x, target.y);
    pen.stroke();
  }
  pen.setLineDash([]);
  pen.globalAlpha = 1;
}

function drawNodes(pen, nodes, theme, selected, colour, zoom) {
  for (const node of nodes) {
    const { peer } = node;
    const chosen = node.id === selected;
    pen.beginPath();
    const radius = Math.max(node.radius, 2.6 / zoom);
    pen.arc(node.x, node.y, radius, 0, 2 * Math.PI);
    pen.fillStyle = peer.present ? colour(node) : theme.paper;
    pen.fill();
    pen.lineWidth = peer.present ? 1.5 : 2;
    pen.strokeStyle = peer.present ? theme.paper : colour(node);
    pen.setLineDash(peer.present ? [] : [3, 3]);
    pen.stroke();
    pen.setLineDash([]);
    if (!peer.me && !chosen) continue;
    pen.beginPath();
    pen.arc(node.x, node.y, radius + 4, 0, 2 * Math.PI);
    pen.lineWidth = Math.max(chosen ? 3 : 2, 1.5 / zoom);
    pen.strokeStyle = chosen ? theme.ink : colour(node);
    pen.stroke();
  }
}

// Names are not written over each other, and stay within the edges of the canvas.
function drawNames(pen, nodes, theme, selected, zoom, [left, right]) {
  const all = nodes.length <= LABELS_UP_TO || zoom > 1.6;
  const taken = [];
  const important = (node) => Number(node.id === selected) + Number(Boolean(node.me));
  pen.font = `500 ${12 / zoom}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.lineJoin = "round";
  for (const node of [...nodes].sort((a, b) => important(b) - important(a))) {
    const { peer } = node;
    if (!all && !important(node)) break;
    const words = clean(peer.name || "(no name)", 20);
    const below = node.y + node.radius + (important(node) ? 6 : 0) + 15 / zoom;
    const [half, line] = [(3.4 * words.length) / zoom, 13 / zoom];
    const middle = Math.max(left + half, Math.min(right - half, node.x));
    if (taken.some(([x, y, other]) => Math.abs(x - middle) < half + other && Math.abs(y - below) < line)) continue;
    taken.push([middle, below, half]);
    pen.globalAlpha = peer.present ? 1 : 0.6;
    pen.lineWidth = 3.5 / zoom;
    pen.strokeStyle = theme.paper;
    pen.strokeText(words, middle, below);
    pen.fillStyle = theme.ink;
    pen.fillText(words, middle, below);
  }
  pen.globalAlpha = 1;
}
