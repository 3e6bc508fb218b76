// The data: every shard as a dot by confidence, samples by state, who holds what, and the journey of one shard.
import { barLine, by, bytes, clean, element, fixed, mark, nameOf, percent, whole, write } from "./format.js";
import { Dots, STATES, stateWords } from "./dots.js";
import { journey } from "./journey.js";
import { label, term } from "./glossary.js";
import { Asked } from "./store.js";
import { Rows, TEXT, definitions } from "./tables.js";

const ROWS = 100; // shards in the table
const HOLDERS = 12;

export class DataView {
  constructor(store) {
    this.store = store;
    this.shards = [];
    this.chosen = null;
    this.asked = new Asked(() => store.address("api/shards"), 2, (shards) => {
      this.shards = shards;
      this.show();
    });
    this.dots = new Dots(by("dots"), (id) => this.choose(id));
    this.rows = new Rows(by("shards"), this.columns(), (id) => this.choose(id));
  }

  legend(shards) {
    const samples = shards.reduce((sum, shard) => sum + shard.samples, 0);
    const parts = Object.entries(STATES).map(([state, colour]) => term("span", state, "", {}, mark(`var(${colour})`), `${label(state)} ${percent(inState(shards, state) / Math.max(1, samples), 0)}`));
    by("states").replaceChildren(...parts, element("span", "", {}, element("i", "", { class: "outline" }), "not here"));
  }

  columns() {
    return [
      ["shard", (shard) => clean(shard.id, 12), TEXT],
      ["holder", (shard) => nameOf(shard.holder, this.store.latest), TEXT],
      ["shard.samples", (shard) => whole(shard.samples)],
      ["shard.size_bytes", (shard) => bytes(shard.size_bytes)],
      ["confidence", (shard) => fixed(shard.confidence, 2)],
      ["visits", (shard) => whole(shard.visits)],
      ["states", (shard) => stateWords(shard), TEXT],
      ["shard.reason", (shard) => clean(shard.reason, 80) || "–", TEXT],
    ];
  }

  open() {
    this.asked.open();
  }

  close() {
    this.asked.close();
  }

  show() {
    const { shards } = this;
    by("no-data").hidden = shards.length > 0;
    if (this.asked.value) write(by("no-data-reason"), "Data travels between nodes that were started with --share-data. What they hold appears here.");
    by("data-body").hidden = shards.length === 0;
    if (!shards.length) return;
    definitions(by("data-figures"), figures(shards, this.store.status));
    this.dots.show(shards, this.chosen);
    this.legend(shards);
    this.holders();
    const first = [...shards].sort((a, b) => (a.confidence ?? 2) - (b.confidence ?? 2)).slice(0, ROWS);
    this.rows.show(first, this.chosen);
    write(by("shards-more"), shards.length > ROWS ? `The ${ROWS} with the lowest confidence of ${whole(shards.length)}.` : "");
  }

  holders() {
    const counts = new Map();
    for (const { holder } of this.shards) counts.set(holder, (counts.get(holder) ?? 0) + 1);
    const sorted = [...counts].sort(([, a], [, b]) => b - a);
    const rest = sorted.slice(HOLDERS).reduce((sum, [, count]) => sum + count, 0);
    const shown = sorted.slice(0, HOLDERS).map(([id, count]) => [nameOf(id, this.store.latest), count]);
    if (rest) shown.push([`${sorted.length - HOLDERS} others`, rest]);
    const most = Math.max(...shown.map(([, count]) => count));
    by("holders").replaceChildren(...shown.map(([name, count]) => barLine(element("span", name), count / most, whole(count))));
  }

  async choose(id) {
    this.chosen = id;
    this.show();
    const shard = this.shards.find((one) => one.id === id);
    by("journey").hidden = !shard;
    if (!shard) return;
    let known = shard;
    try {
      const answer = await fetch(this.store.address("api/journey", { shard: id }));
      if (answer.ok) known = await answer.json();
    } catch {}
    if (this.chosen === id) journey(by("journey"), known, this.store.latest);
  }
}

const inState = (shards, state) => shards.reduce((sum, shard) => sum + (shard.states[state] ?? 0), 0);

function figures(shards, status) {
  const scored = shards.filter((shard) => shard.confidence != null);
  const mean = scored.length ? scored.reduce((sum, shard) => sum + shard.confidence, 0) / scored.length : null;
  return [
    ["shards_here", whole(shards.filter((shard) => shard.here).length)],
    ["shards_in_all", status?.shards_in_all ? whole(status.shards_in_all) : "not known"],
    ["shards_received", whole(shards.filter((shard) => shard.received).length)],
    ["samples", whole(shards.reduce((sum, shard) => sum + shard.samples, 0)), "samples in them"],
    ["mean_confidence", fixed(mean, 2)],
    ...Object.keys(STATES).map((state) => [state, whole(inState(shards, state))]),
  ];
}
