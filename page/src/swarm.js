// The swarm: graph, legend, card of the chosen peer, and the same as a table.
import { ago, bytes, clean, element, number, percent, short, whole } from "./format.js";
import { COLOURS, Graph, groupOf, similarityColour } from "./graph.js";

const COLUMNS = [
  ["peer", (peer) => `${clean(peer.name) || "(no name)"}${peer.me ? " (this node)" : ""}`],
  ["id", (peer) => short(peer.id)],
  ["group", (peer) => groupOf(peer) || "–"],
  ["round", (peer) => whole(peer.round)],
  ["loss", (peer) => number(peer.loss)],
  ["updates", (peer) => percent(peer.update_norm, 2)],
  ["similar", (peer) => number(peer.similarity, 2)],
  ["answers in", (peer) => (peer.latency_ms == null ? "–" : `${Math.round(peer.latency_ms)} ms`)],
  ["heard", (peer) => (peer.me ? "–" : ago(peer.heard_seconds_ago))],
  ["faults", (peer) => whole(peer.faults ?? 0)],
];

export class SwarmView {
  constructor(store) {
    this.store = store;
    this.graph = new Graph(document.getElementById("graph"), () => this.show());
    document.querySelector("#peers thead").replaceChildren(row("th", COLUMNS.map(([name]) => name)));
    this.listen();
  }

  listen() {
    const scrub = document.getElementById("scrub");
    scrub.addEventListener("input", () => this.store.scrub(Number(scrub.value)));
    document.getElementById("live").addEventListener("click", () => this.store.scrub(Infinity));
  }

  show() {
    const picture = this.store.shown;
    if (!picture) return;
    this.graph.show(picture);
    this.time(picture);
    this.legend(picture);
    this.table(picture);
    this.card(picture);
  }

  time(picture) {
    const { pictures, at } = this.store;
    const scrub = document.getElementById("scrub");
    scrub.max = String(Math.max(0, pictures.length - 1));
    scrub.value = String(at ?? pictures.length - 1);
    document.getElementById("live").setAttribute("aria-pressed", String(at == null));
    const when = new Date(1000 * picture.time).toLocaleString("en-GB");
    document.getElementById("moment").textContent = at == null ? "now" : when;
    scrub.setAttribute("aria-valuetext", at == null ? "now" : when);
  }

  legend(picture) {
    const dark = document.documentElement.dataset.theme === "dark";
    const parts = this.graph.groups.filter(Boolean).slice(0, 12).map((name) => swatch(COLOURS[this.graph.groups.indexOf(name) % COLOURS.length], name));
    if (picture.exchanges.length) parts.push(swatch(similarityColour(null, dark), "exchange; wider: more bytes", "line"));
    if (picture.exchanges.some((edge) => edge.similarity != null)) {
      parts.push(swatch(similarityColour(0, dark), "unlike", "line"), swatch(similarityColour(1, dark), "alike", "line"));
    }
    if (picture.peers.some((peer) => !peer.present)) parts.push(swatch("transparent", "dashed: silent"));
    document.getElementById("legend").replaceChildren(...parts);
  }

  table(picture) {
    const rows = [...picture.peers]
      .sort((a, b) => Number(Boolean(b.me)) - Number(Boolean(a.me)) || Number(b.present) - Number(a.present) || a.name.localeCompare(b.name))
      .map((peer) => {
        const made = row("td", COLUMNS.map(([, value]) => value(peer)));
        made.classList.toggle("gone", !peer.present);
        made.setAttribute("aria-selected", String(peer.id === this.graph.selected));
        made.dataset.peer = peer.id;
        made.addEventListener("click", () => this.graph.select(peer.id));
        return made;
      });
    document.querySelector("#peers tbody").replaceChildren(...rows);
  }

  card(picture) {
    const card = document.getElementById("card");
    const peer = picture.peers.find((one) => one.id === this.graph.selected);
    if (!peer) return card.replaceChildren();
    const edge = picture.exchanges.find((one) => one.one === peer.id || one.other === peer.id);
    const pairs = [
      ["id", short(peer.id)],
      ["role", clean(peer.role, 16)],
      ["state", peer.me ? picture.condition : peer.present ? "there" : "silent"],
      ["group", groupOf(peer)],
      ["round", peer.round == null ? "" : whole(peer.round)],
      ["loss", peer.loss == null ? "" : number(peer.loss)],
      ["accuracy", peer.accuracy == null ? "" : percent(peer.accuracy)],
      ["speed", peer.steps_per_second == null ? "" : `${whole(peer.steps_per_second)} steps/s`],
      ["similarity", peer.similarity == null ? "" : number(peer.similarity, 2)],
      ["reached", peer.reached ?? ""],
      ["answers in", peer.latency_ms == null ? "" : `${Math.round(peer.latency_ms)} ms`],
      ["exchanges", edge && !peer.me ? `${edge.count}, ${bytes(edge.sent_bytes)} ↑ ${bytes(edge.received_bytes)} ↓` : ""],
      ["why", clean(peer.why, 120)],
      ["faults", peer.faults ? whole(peer.faults) : ""],
    ];
    const list = document.createElement("dl");
    for (const [term, value] of pairs) if (value) list.append(element("dt", term), element("dd", value));
    card.replaceChildren(element("h2", clean(peer.name) || "(no name)"), list);
  }
}

function row(tag, values) {
  const made = document.createElement("tr");
  made.append(...values.map((value) => element(tag, value)));
  return made;
}

function swatch(colour, words, kind = "") {
  const made = document.createElement("span");
  const mark = element("i", "", kind ? { class: kind } : {});
  mark.style.background = colour;
  if (colour === "transparent") mark.style.border = "1px dashed currentColor";
  made.append(mark, words);
  return made;
}
