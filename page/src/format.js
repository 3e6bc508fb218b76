// Text and numbers for people. Everything a peer can set reaches the page as text, never as markup.

export const percent = (value, digits = 1) => (value == null ? "–" : `${(100 * value).toFixed(digits)} %`);
export const number = (value, digits = 3) => (value == null ? "–" : tiny(value) ? scientific(value) : Math.abs(value) >= 10 ** digits ? whole(value) : Number(value).toPrecision(digits));
export const smallShare = (value) => (value == null ? "–" : `${number(100 * value, 2)} %`);
export const fixed = (value, digits = 3) => (value == null ? "–" : Number(value).toFixed(digits));
export const whole = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en"));
const tiny = (value) => value !== 0 && Math.abs(value) < 0.001;
const SUPERSCRIPT = "⁰¹²³⁴⁵⁶⁷⁸⁹";

// 0.0000123 as 1.23·10⁻⁵
export function scientific(value, digits = 3) {
  const [factor, power] = value.toExponential(digits - 1).split("e");
  const raised = [...String(Math.abs(power))].map((digit) => SUPERSCRIPT[digit]).join("");
  const plain = String(Number(factor));
  return `${plain === "1" ? "" : `${plain}·`}10${power < 0 ? "⁻" : ""}${raised}`;
}

export const short = (id) => id.slice(-8);
export const clock = (time) => new Date(1000 * time).toLocaleTimeString("en-GB");
export const plural = (count, word) => `${whole(count)} ${word}${count === 1 ? "" : "s"}`;

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1000 && at < units.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${at === 0 ? Math.round(count) : count.toPrecision(3)} ${units[at]}`;
}

export function ago(seconds) {
  if (seconds == null) return "never";
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

export function clean(text, limit = 60) {
  const plain = String(text ?? "").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "");
  return plain.length > limit ? `${plain.slice(0, limit - 1)}…` : plain;
}

// The name of the first job that trains, or of the first.
export const firstJob = (jobs = {}) => Object.keys(jobs).find((name) => jobs[name].train) ?? Object.keys(jobs)[0];

// What a node reports of a job, with the figures of training among the others.
export const flat = (reported) => ({ ...reported, ...reported?.train });

// A peer's state in a job; where none is named, in its first job that trains.
export const inJob = (peer, job) => flat(peer.jobs?.[job ?? firstJob(peer.jobs)]);

// A figure of any kind of work, in the units of wire.status.Figure.
export function figure(value, unit, picture) {
  if (value == null) return "–";
  if (typeof value === "string") return unit === "peer" ? nameOf(value, picture) : clean(value, 100);
  if (unit === "share") return percent(value);
  if (unit === "bytes") return bytes(value);
  return `${Number.isInteger(value) ? whole(value) : number(value, 4)}${unit ? ` ${clean(unit, 20)}` : ""}`;
}

export const called = (peer) => clean(peer?.name) || "(no name)";

// The name of a peer, or the end of its id where the name is not known here.
export function nameOf(id, picture) {
  const known = picture?.peers.find((peer) => peer.id === id);
  if (known?.me) return "this node";
  return known ? called(known) : `…${clean(short(id), 12)}`;
}

// How many nodes of the run answer, this one included, and who only looks.
export function inRun({ peers }) {
  const here = (role) => peers.filter((peer) => peer.present && peer.role === role).length;
  const others = [["observer", "observer"], ["bootstrap", "meeting point"]].filter(([role]) => here(role));
  return [plural(here("node"), "node"), ...others.map(([role, word]) => plural(here(role), word))].join(", ");
}

// The reason for a pause as the beginning of a sentence.
export const pausedBecause = (reason) => (/^paused/i.test(reason) ? `P${clean(reason, 120).slice(1)}` : `Paused: ${clean(reason, 120)}`);

export const median = (sorted) => (sorted.length ? sorted[Math.floor(sorted.length / 2)] : null);

// ---- elements ----

export const by = (id) => document.getElementById(id);

export function element(tag, text = "", attributes = {}, ...inside) {
  const made = document.createElement(tag);
  if (text) made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

// A mark of a legend.
export function mark(colour, kind = "dot") {
  const made = element("i", "", { class: kind });
  made.style.background = colour;
  return made;
}

// A line of a list of bars: what it is, how long, and the number.
export function barLine(name, share, text, kind = "bar") {
  const bar = element("i", "", { class: kind });
  bar.style.width = `${100 * Math.max(0, Math.min(1, share))}%`;
  return element("li", "", {}, name, element("b", "", {}, bar), element("em", text));
}

// The value of a colour of the theme, for canvases.
export const ink = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export function drawn(tag, attributes = {}, ...inside) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
}

// Set a text only where it differs: what did not change is not laid out or read aloud again.
export function write(place, text) {
  if (place.textContent !== String(text)) place.textContent = text;
}
