// Lists and tables of figures: their labels and explanations come from the glossary.
import { element, figure, write } from "./format.js";
import { reported, term } from "./glossary.js";

// Pairs of a figure's name and its value; a third item is another label.
export function definitions(list, pairs) {
  const key = pairs.map(([name, , words]) => `${name} ${words ?? ""}`).join();
  if (list.dataset.key !== key) {
    list.dataset.key = key;
    list.replaceChildren(...pairs.map(([name, , words]) => element("div", "", {}, term("dt", name, words), element("dd"))));
  }
  pairs.forEach(([, value], at) => write(list.children[at].lastChild, value));
}

export const TEXT = "text"; // a column of words, which stands left

// A column for each figure in the state of a job of any kind; `stateOf` finds the state of a row.
export const reportedColumns = (state, stateOf, store) =>
  (state?.figures ?? []).map((one) => {
    const column = [reported(one), (row) => figure(stateOf(row).figures?.find((other) => other.name === one.name)?.value, one.unit, store.latest)];
    return typeof one.value === "string" ? [...column, TEXT] : column;
  });

// A table whose rows stay the same elements while their texts change. A column is [name, value, TEXT?].
export class Rows {
  constructor(table, columns, choose = null) {
    this.body = table.tBodies[0];
    this.body.replaceChildren();
    this.columns = columns;
    this.choose = choose;
    this.rows = new Map();
    table.tHead.replaceChildren(element("tr", "", {}, ...columns.map(([name, , kind]) => term("th", name, "", { scope: "col", class: kind ?? "" }))));
  }

  show(items, chosen = null, mark = () => {}) {
    const ids = new Set(items.map((item) => item.id));
    for (const [id, row] of this.rows) if (!ids.has(id)) this.rows.delete(id), row.remove();
    items.forEach((item, at) => {
      const row = this.rows.get(item.id) ?? this.make(item.id);
      this.columns.forEach(([, value], column) => write(row.cells[column], value(item)));
      if (this.choose) row.setAttribute("aria-current", String(item.id === chosen));
      mark(row, item);
      if (this.body.rows[at] !== row) this.body.insertBefore(row, this.body.rows[at] ?? null);
    });
  }

  make(id) {
    const row = element("tr", "", {}, ...this.columns.map(([, , kind]) => element("td", "", { class: kind ?? "" })));
    if (this.choose) {
      row.tabIndex = 0;
      row.addEventListener("click", () => this.choose(id));
      row.addEventListener("keydown", (event) => {
        if (event.key === "Enter" || event.key === " ") event.preventDefault(), this.choose(id);
      });
    }
    this.rows.set(id, row);
    return row;
  }
}
