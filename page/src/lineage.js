// Whose updates are in this node's weights: each author's share of what was added, in all and layer by layer.
import { by, clean, clock, element, mark, nameOf, percent, write } from "./format.js";
import { term } from "./glossary.js";
import { COLOURS } from "./graph.js";
import { Asked } from "./store.js";

const AUTHORS = 16; // rows; the rest together
const OTHERS = "\u0000others";

export class LineageView {
  constructor(store) {
    this.store = store;
    this.asked = new Asked(() => store.address("api/lineage"), 10, (found) => this.draw(found));
  }

  open() {
    this.asked.open();
  }

  close() {
    this.asked.close();
  }

  show() {}

  draw({ shares, problem, time }) {
    const { layers, rows } = condensed(shares);
    by("lineage-body").hidden = !rows.length;
    by("no-lineage").hidden = rows.length > 0;
    write(by("no-lineage-reason"), clean(problem, 200) || "No entry has come in or gone out yet. The first rounds publish some.");
    if (!rows.length) return;
    write(by("lineage-when"), `computed at ${clock(time)} from the entries this node still keeps`);
    by("shares").replaceChildren(...rows.map((row, at) => this.part(row, at)));
    by("shares-names").replaceChildren(...rows.map((row, at) => this.key(row, at)));
    this.table(layers, rows);
  }

  name(row) {
    return row.id === OTHERS ? `${row.count} others` : nameOf(row.id, this.store.latest);
  }

  part(row, at) {
    const made = element("i", "", { title: `${this.name(row)}: ${percent(row.mean)}` });
    made.style.flexGrow = String(row.mean);
    made.style.background = colourOf(row, at);
    return made;
  }

  key(row, at) {
    return element("span", "", {}, mark(colourOf(row, at)), `${this.name(row)} ${percent(row.mean, 0)}`);
  }

  table(layers, rows) {
    const most = Math.max(...rows.flatMap((row) => layers.map((layer) => row.shares[layer] ?? 0)), 1e-9);
    const head = [term("th", "peer", "author", { scope: "col", class: "text" }), term("th", "lineage_share", "all layers", { scope: "col" }), ...layers.map((layer) => element("th", clean(layer, 28), { scope: "col" }))];
    const body = rows.map((row) => {
      const cells = [row.mean, ...layers.map((layer) => row.shares[layer] ?? 0)].map((share, at) => {
        const cell = element("td", percent(share, share < 0.0995 ? 1 : 0), at ? { class: "heat" } : {});
        if (at) cell.style.setProperty("--heat", `${Math.round((80 * share) / most)}%`);
        return cell;
      });
      return element("tr", "", {}, element("th", this.name(row), { scope: "row" }), ...cells);
    });
    by("lineage-table").tHead.replaceChildren(element("tr", "", {}, ...head));
    by("lineage-table").tBodies[0].replaceChildren(...body);
  }
}

const colourOf = (row, at) => (row.id === OTHERS ? "var(--quiet)" : at < COLOURS.length ? COLOURS[at] : `color-mix(in srgb, ${COLOURS[at % COLOURS.length]} 55%, var(--panel))`);

// The authors with the largest shares one by one, the rest as one row.
export function condensed(shares) {
  const layers = Object.keys(Object.values(shares)[0] ?? {});
  const mean = (own) => layers.reduce((sum, layer) => sum + (own[layer] ?? 0), 0) / Math.max(1, layers.length);
  const sorted = Object.entries(shares).map(([id, own]) => ({ id, shares: own, mean: mean(own) })).sort((a, b) => b.mean - a.mean);
  const rest = sorted.slice(AUTHORS);
  if (!rest.length) return { layers, rows: sorted };
  const together = Object.fromEntries(layers.map((layer) => [layer, rest.reduce((sum, row) => sum + (row.shares[layer] ?? 0), 0)]));
  return { layers, rows: [...sorted.slice(0, AUTHORS), { id: OTHERS, count: rest.length, shares: together, mean: mean(together) }] };
}
