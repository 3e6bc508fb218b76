// The jobs of this node: one table for each kind of work. Choosing a job shows it on the tab of its kind.
import { by, clean, element, number, percent, whole } from "./format.js";
import { Rows, TEXT } from "./tables.js";

// What a kind adds to the table, and the tab that shows a job of it. A new kind of work adds a line here.
export const KINDS = {
  train: {
    title: "Training",
    tab: "learning",
    columns: [
      ["round", ({ state }) => whole(state.round)],
      ["loss", ({ state }) => number(state.loss)],
      ["accuracy", ({ state }) => percent(state.accuracy)],
    ],
  },
};
const OTHER = { title: "Other work", tab: null, columns: [] };
const FIRST = [
  ["job", ({ name }) => clean(name, 40), TEXT],
  ["kind", ({ kind }) => clean(kind, 20), TEXT],
  ["task", ({ task }) => clean(task, 40) || "–", TEXT],
  ["condition", ({ condition }) => clean(condition, 20), TEXT],
];
const LAST = [
  ["compute_share", (job) => percent(job.compute_share, 0)],
  ["job.reason", ({ reason }) => clean(reason, 120) || "–", TEXT],
];

export class JobsView {
  constructor(store, openTab) {
    Object.assign(this, { store, openTab, tables: new Map() });
  }

  show() {
    const jobs = Object.entries(this.store.latest?.jobs ?? {}).map(([name, status]) => ({ ...status, id: name, name }));
    const kinds = new Map();
    for (const job of jobs) kinds.set(job.kind, [...(kinds.get(job.kind) ?? []), job]);
    for (const [kind, made] of this.tables) if (!kinds.has(kind)) this.tables.delete(kind), made.place.remove();
    for (const [kind, members] of kinds) {
      if (!this.tables.has(kind)) this.tables.set(kind, this.table(kind));
      this.tables.get(kind).rows.show(members, this.store.job);
    }
  }

  table(kind) {
    const { title, tab, columns } = KINDS[kind] ?? OTHER;
    const table = element("table", "", {}, element("caption", title), element("thead"), element("tbody"));
    const place = element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Jobs: ${title}` }, table);
    by("job-tables").append(place);
    const choose = (name) => {
      this.store.choose(name);
      if (tab) this.openTab(tab);
    };
    return { place, rows: new Rows(table, [...FIRST, ...columns, ...LAST], choose) };
  }
}
