// Who owned which queue when: a line for each queue, in the colour of its owner at the time.
import { COLOURS, UNKNOWN } from "./draw.js";
import { clean, clock, drawn, element, mark, nameOf } from "./format.js";

const [WIDTH, LINE, LEFT] = [800, 26, 110];

// The queues that a job reports in a picture: name, owner, term.
const queuesIn = (picture, job) => {
  const table = picture.jobs[job]?.tables?.find(({ title }) => title === "queues");
  if (!table) return [];
  const at = (label) => table.columns.findIndex(([name]) => name === label);
  const [queue, owner, term] = ["queue", "owner", "term"].map(at);
  return table.rows.slice(0, 32).map((row) => ({ queue: row[queue], owner: row[owner], term: row[term] }));
};

// For each queue the spans of time in which somebody owned it: owner, term, since, until.
export function ownership(pictures, job) {
  const spans = new Map();
  for (const picture of pictures)
    for (const { queue, owner, term } of queuesIn(picture, job)) {
      if (!spans.has(queue)) spans.set(queue, []);
      const seen = spans.get(queue);
      const last = seen.at(-1);
      if (last) last.until = picture.time;
      if (owner && (last?.owner !== owner || last?.term !== term)) seen.push({ owner, term, since: picture.time, until: picture.time });
    }
  return spans;
}

export function drawOwnership(place, pictures, job) {
  const spans = ownership(pictures, job);
  const [first, last] = [pictures[0]?.time ?? 0, pictures.at(-1)?.time ?? 0];
  const owners = [...new Set([...spans.values()].flat().map(({ owner }) => owner))];
  const colour = (owner) => COLOURS[owners.indexOf(owner)] ?? UNKNOWN;
  const x = (time) => LEFT + ((WIDTH - LEFT) * (time - first)) / Math.max(1, last - first);
  const picture = pictures.at(-1);
  const lines = [...spans].flatMap(([queue, seen], at) => [
    drawn("text", { x: 0, y: LINE * at + 17, class: "queue-name" }, clean(queue, 16)),
    ...seen.flatMap(({ owner, term, since, until }) => [
      drawn("rect", { x: x(since), y: LINE * at + 4, width: Math.max(1, x(until) - x(since)), height: LINE - 8, rx: 2, fill: colour(owner) },
        drawn("title", {}, `${clean(queue, 32)}: ${nameOf(owner, picture)}, term ${term}, from ${clock(since)} to ${clock(until)}`)),
    ]),
  ]);
  const words = owners.length ? `From ${clock(first)} to ${clock(last)}; ` : "No queue has an owner yet.";
  const legend = owners.slice(0, COLOURS.length).map((owner) => element("span", "", {}, mark(colour(owner)), nameOf(owner, picture)));
  place.replaceChildren(
    drawn("svg", { viewBox: `0 0 ${WIDTH} ${LINE * Math.max(1, spans.size)}`, role: "img", "aria-label": "Who owned which queue when" }, ...lines),
    element("p", "", { class: "legend" }, words, ...legend),
  );
}
