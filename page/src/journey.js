// One shard's card: what is known of it, and each visit as a step from the confidence before to the one after.
import { stateWords } from "./dots.js";
import { bytes, clean, clock, drawn, element, fixed, nameOf, plural, whole } from "./format.js";
import { term } from "./glossary.js";

const [STEP, HIGH, TOP, LEFT] = [92, 120, 14, 34];

export function journey(place, shard, picture) {
  const list = element("dl");
  const facts = [
    ["shard.samples", whole(shard.samples)],
    ["shard.size_bytes", bytes(shard.size_bytes)],
    ["states", stateWords(shard)],
    ["confidence", shard.confidence == null ? "" : fixed(shard.confidence, 2)],
    ["holder", nameOf(shard.holder, picture)],
    ["keepers", shard.keepers.map((id) => nameOf(id, picture)).join(", ")],
    ["origin", shard.received ? "another peer" : "this node's data"],
    ["shard.reason", clean(shard.reason, 160)],
  ];
  for (const [name, value] of facts) if (value) list.append(term("dt", name), element("dd", value));
  const visits = shard.journey ?? [];
  place.replaceChildren(
    element("h2", `Shard ${clean(shard.id, 16)}`),
    element("div", "", { class: "beside" }, list, element("div", "", {}, element("h3", visits.length ? `Its journey: ${plural(visits.length, "visit")}, with the confidence before and after each` : shard.visits ? `${plural(shard.visits, "visit")}, not known here` : "It has not travelled: no visit is recorded"),
    ...(visits.length ? [element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": "The journey" }, timeline(visits, picture)), steps(visits, picture)] : []))),
  );
}

function timeline(visits, picture) {
  const width = LEFT + STEP * visits.length + 12;
  const y = (confidence) => TOP + HIGH * (1 - Math.max(0, Math.min(1, confidence)));
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${HIGH + TOP + 44}`, width, height: HIGH + TOP + 44, class: "timeline", "aria-hidden": "true" });
  for (const level of [0, 0.5, 1]) {
    svg.append(drawn("line", { x1: LEFT, x2: width, y1: y(level), y2: y(level), class: "grid" }), words(LEFT - 8, y(level) + 4, String(level), "end"));
  }
  visits.forEach((visit, at) => {
    const [left, right] = [LEFT + STEP * at + 18, LEFT + STEP * (at + 1) - 18];
    const kind = visit.after >= visit.before ? "up" : "down";
    if (at) svg.append(drawn("line", { x1: left - 36, x2: left, y1: y(visits[at - 1].after), y2: y(visit.before), class: "between" }));
    svg.append(
      drawn("line", { x1: left, x2: right, y1: y(visit.before), y2: y(visit.after), class: kind }),
      drawn("circle", { cx: left, cy: y(visit.before), r: 3.5, class: `${kind} before` }),
      drawn("circle", { cx: right, cy: y(visit.after), r: 4.5, class: kind }),
      words((left + right) / 2, HIGH + TOP + 20, clean(nameOf(visit.peer, picture), 13), "middle"),
      words((left + right) / 2, HIGH + TOP + 36, `round ${visit.round}`, "middle", "dim"),
    );
  });
  return svg;
}

function words(x, y, text, anchor, kind = "") {
  const made = drawn("text", { x, y, "text-anchor": anchor, class: kind });
  made.textContent = text;
  return made;
}

// The same as text, for screen readers.
function steps(visits, picture) {
  return element("ol", "", { class: "unseen" }, ...visits.map((visit) => element("li", `${clock(visit.time)}: ${nameOf(visit.peer, picture)}, round ${visit.round}, confidence ${fixed(visit.before, 2)} before, ${fixed(visit.after, 2)} after`)));
}
