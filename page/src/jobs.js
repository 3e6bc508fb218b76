// The jobs of this node: one table for each kind of work, and the tables that jobs report about themselves.
import { by, clean, element, figure, flat, number, percent, whole } from "./format.js";
import { drawOwnership } from "./queues.js";
import { Rows, TEXT, reportedColumns } from "./tables.js";

// What jobs that train a model add to the table, besides the figures that any job may report.
const TRAINING = [
  ["task", ({ task }) => clean(task, 40) || "–", TEXT],
  ["round", ({ state }) => whole(state.round)],
  ["loss", ({ state }) => number(state.loss)],
  ["accuracy", ({ state }) => percent(state.accuracy)],
];
const FIRST = [
  ["job", ({ name }) => clean(name, 40), TEXT],
  ["kind", ({ kind }) => clean(kind, 20), TEXT],
  ["condition", ({ condition }) => clean(condition, 20), TEXT],
];
const LAST = [
  ["compute_share", (job) => percent(job.compute_share, 0)],
  ["job.reason", ({ reason }) => clean(reason, 120) || "–", TEXT],
];

// Colours the cells of a table by the number that each begins with: the smallest most.
const shade = (rows) => {
  const found = rows.flat().map(parseFloat).filter(Number.isFinite);
  const [low, high] = [Math.min(...found), Math.max(...found)];
  return (row, { cells }) =>
    cells.forEach((cell, at) => {
      const value = parseFloat(cell);
      const share = !Number.isFinite(value) ? 0 : high > low ? 15 + (40 * (high - value)) / (high - low) : 35;
      row.cells[at].style.background = share ? `color-mix(in srgb, var(--good) ${share.toFixed(0)}%, transparent)` : "";
    });
};

export class JobsView {
  constructor(store, openTab) {
    Object.assign(this, { store, openTab, tables: new Map(), owners: new Map() });
  }

  show() {
    const picture = this.store.latest;
    const jobs = Object.entries(picture?.jobs ?? {}).map(([name, status]) => ({ ...flat(status), state: flat(status.state), id: name, name }));
    const wanted = new Map(); // by key: title, columns, rows
    for (const job of jobs) {
      const columns = [...(job.train ? TRAINING : []), ...reportedColumns(job.state, (other) => other.state, this.store)];
      const title = job.kind === "train" ? "Training" : `Jobs of kind ${clean(job.kind, 40)}`;
      const key = JSON.stringify([job.kind, columns.map(([label]) => label)]);
      if (!wanted.has(key)) wanted.set(key, { title, columns: [...FIRST, ...columns, ...LAST], rows: [], tab: job.train ? "learning" : "" });
      wanted.get(key).rows.push(job);
    }
    for (const job of jobs) for (const table of job.tables ?? []) this.want(wanted, job, table);
    for (const [key, made] of this.tables) if (!wanted.has(key)) this.tables.delete(key), made.place.remove();
    for (const [key, table] of wanted) {
      if (!this.tables.has(key)) this.tables.set(key, this.make(table));
      this.tables.get(key).rows.show(table.rows, this.store.job, table.mark);
    }
    this.ownership(jobs.filter((job) => job.tables?.some(({ title }) => title === "queues")));
  }

  // A picture for each job with queues: who owned which of them when.
  ownership(jobs) {
    for (const [name, place] of this.owners) if (!jobs.some((job) => job.name === name)) this.owners.delete(name), place.remove();
    for (const { name } of jobs) {
      if (!this.owners.has(name)) {
        const place = element("div", "", { class: "ownership" });
        this.owners.set(name, element("figure", "", {}, element("figcaption", `${clean(name, 40)}: who owned which queue when`), place));
        by("job-tables").append(this.owners.get(name));
      }
      drawOwnership(this.owners.get(name).lastChild, this.store.pictures, name);
    }
  }

  // A table that a job reports about itself.
  want(wanted, job, { title, columns, rows, shaded }) {
    const cell = (at, unit) => ({ cells }) => figure(cells[at], unit, this.store.latest);
    wanted.set(JSON.stringify([job.name, title, columns]), {
      title: `${clean(job.name, 40)}: ${clean(title, 80)}`,
      columns: columns.map(([label, unit], at) => [{ label: clean(label, 60) }, cell(at, unit), ...(rows.some((row) => typeof row[at] === "string") ? [TEXT] : [])]),
      rows: rows.slice(0, 200).map((cells, id) => ({ id, cells })),
      plain: true,
      mark: shaded ? shade(rows) : undefined,
    });
  }

  make({ title, columns, tab, plain }) {
    const table = element("table", "", {}, element("caption", title), element("thead"), element("tbody"));
    const place = element("div", "", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Jobs: ${title}` }, table);
    by("job-tables").append(place);
    const choose = (name) => {
      this.store.choose(name);
      if (tab) this.openTab(tab);
    };
    return { place, rows: new Rows(table, columns, plain ? null : choose) };
  }
}
