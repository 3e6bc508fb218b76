// The swarm: graph, legend, card of the selected peer, time, curves, and a table of peers.
import { ago, by, bytes, called, clean, element, figure, fixed, mark, number, percent, plural, short, smallShare, whole, write } from "./format.js";
import { Curves } from "./curves.js";
import { reported, term } from "./glossary.js";
import { Asked } from "./store.js";
import { Rows, TEXT, reportedColumns } from "./tables.js";
import { UNKNOWN } from "./draw.js";
import { Graph, circleName, communityName, groupName, groupOf, similarityColour } from "./graph.js";

const PLAY_EVERY = 100; // milliseconds a picture
const named = (circle, picture, job) => (circle ? circleName(circle, picture, job) : "");

// What jobs that train a model say of themselves.
const training = (store) => [
  ["round", (peer) => whole(store.state(peer).round)],
  ["loss", (peer) => number(store.state(peer).loss)],
  ["accuracy", (peer) => percent(store.state(peer).accuracy)],
  ["update_norm", (peer) => smallShare(store.state(peer).update_norm)],
];

const columns = (store, own) => [
  ["peer", (peer) => `${called(peer)}${peer.me ? " (this node)" : peer.role === "node" ? "" : ` (${clean(peer.role, 12)})`}`, TEXT],
  ["community", (peer) => (peer.community ? communityName(peer.community, store.shown) : "–"), TEXT],
  ["circle", (peer) => named(store.state(peer).circle, store.shown, store.job) || "–", TEXT],
  ...own,
  ["similarity", (peer) => (peer.me ? "–" : fixed(peer.similarity))],
  ["latency_ms", (peer) => (peer.latency_ms == null ? "–" : `${Math.round(peer.latency_ms)} ms`)],
  ["heard_seconds_ago", (peer) => (peer.me ? "–" : ago(peer.heard_seconds_ago))],
  ["faults", (peer) => whole(peer.faults ?? 0)],
];

export class SwarmView {
  constructor(store) {
    this.store = store;
    this.graph = new Graph(by("graph"), () => this.show());
    this.curves = new Curves(by("swarm-accuracy"), by("swarm-loss"), { height: 150 });
    this.playing = null;
    this.asked = new Asked(() => store.address("api/similarity"), 10, (found) => this.compare(found));
    this.listen();
  }

  listen() {
    by("scrub").addEventListener("input", () => this.store.scrub(Number(by("scrub").value)));
    by("live").addEventListener("click", () => this.store.scrub(Infinity));
    by("play").addEventListener("click", () => (this.playing ? this.stop() : this.play()));
    by("fit").addEventListener("click", () => this.graph.release());
    by("nearer").addEventListener("click", () => this.graph.zoom(1.25));
    by("farther").addEventListener("click", () => this.graph.zoom(0.8));
  }

  play() {
    if (this.store.at == null) this.store.scrub(0);
    this.playing = setInterval(() => {
      this.store.scrub((this.store.at ?? Infinity) + 1);
      if (this.store.at == null) this.stop();
    }, PLAY_EVERY);
    this.show();
  }

  stop() {
    clearInterval(this.playing);
    this.playing = null;
    this.show();
  }

  open() {
    this.asked.open();
  }

  compare({ peers, table }) {
    const place = new Map(peers.map((id, at) => [id, at]));
    this.graph.similarity = (one, other) => {
      const percent = table[place.get(one)]?.[place.get(other)];
      return percent == null ? null : percent / 100;
    };
    this.show();
  }

  close() {
    this.asked.close();
    if (this.playing) this.stop();
  }

  show() {
    const picture = this.store.shown;
    if (!picture) return;
    this.graph.job = this.store.job;
    this.graph.show(picture);
    this.time(picture);
    this.legend(picture);
    this.table(picture);
    this.curves.draw(this.store.pictures, this.store.job);
    this.card(picture);
  }

  time(picture) {
    const { pictures, at } = this.store;
    const [scrub, when] = [by("scrub"), new Date(1000 * picture.time).toLocaleString("en-GB")];
    scrub.max = String(Math.max(0, pictures.length - 1));
    scrub.value = String(at ?? pictures.length - 1);
    scrub.setAttribute("aria-valuetext", at == null ? "now" : when);
    by("live").setAttribute("aria-pressed", String(at == null));
    write(by("play"), this.playing ? "❚❚" : "▶");
    by("play").setAttribute("aria-label", this.playing ? "Stop" : "Play the past");
    write(by("moment"), at != null ? when : this.store.lostSince == null ? "now" : "last seen");
  }

  legend(picture) {
    const [groups, dark] = [this.graph.groups, this.graph.dark];
    const rings = new Set(picture.peers.map((peer) => this.store.state(peer).circle).filter(Boolean)).size;
    const facts = {
      groups: groups.filter((group) => group && this.graph.palette.has(group)).map((group) => [this.graph.colourOf(group), groupName(group, picture, this.store.job)]), others: groups.filter((group) => group && !this.graph.palette.has(group)).length, ungrouped: groups.length > 1 && picture.peers.some((peer) => peer.role === "node" && !groupOf(peer, this.store.job)), rings, dark, edges: picture.exchanges.length > 0, bridges: this.graph.links.some((link) => link.bridge),
      similarity: this.graph.links.some((link) => link.similarity != null), silent: picture.peers.some((peer) => !peer.present), looking: picture.peers.some((peer) => peer.role === "observer"),
    };
    const key = JSON.stringify(facts);
    if (key === this.legendKey) return;
    this.legendKey = key;
    const parts = facts.groups.map(([colour, name]) => swatch(colour, name, "dot", "community"));
    const grey = [facts.others && plural(facts.others, "smaller one"), facts.ungrouped && "community not known"].filter(Boolean).join(", ");
    if (grey) parts.push(swatch(UNKNOWN, grey, "dot", "community"));
    if (facts.looking) parts.push(swatch(UNKNOWN, "observer: only looks", "small", "observer"));
    if (facts.rings) parts.push(swatch("", "circle: shares one delta set", "ring", "circle"));
    if (facts.edges) parts.push(swatch(similarityColour(null, dark), "exchange; wider: more bytes", "line", "exchange"));
    if (facts.bridges) parts.push(swatch("", "bridge between circles", "dashes", "bridge"));
    if (facts.similarity) parts.push(similarityScale(dark));
    if (facts.silent) parts.push(swatch("", "does not answer", "hollow"));
    by("legend").replaceChildren(...parts);
  }

  table(picture) {
    const { status } = this.store;
    const own = [...(status && !status.train ? [] : training(this.store)), ...reportedColumns(status?.state, (peer) => this.store.state(peer), this.store)];
    const key = JSON.stringify(own.map(([label]) => label));
    if (key !== this.tableKey) {
      this.tableKey = key;
      this.rows = new Rows(by("peers"), columns(this.store, own), (id) => {
        this.graph.select(id);
        by("graph").scrollIntoView({ block: "nearest" });
      });
    }
    by("swarm-charts").hidden = Boolean(status && !status.train);
    const order = (a, b) => Number(Boolean(b.me)) - Number(Boolean(a.me)) || Number(b.present) - Number(a.present) || a.name.localeCompare(b.name);
    this.rows.show([...picture.peers].sort(order), this.graph.selected, (row, peer) => row.classList.toggle("gone", !peer.present));
  }

  card(picture) {
    const card = by("card");
    const peer = picture.peers.find((one) => one.id === this.graph.selected);
    card.hidden = !peer;
    if (!peer) return;
    const list = element("dl");
    for (const [name, value, words] of facts(peer, this.store.state(peer), picture, this.store.job)) if (value) list.append(term("dt", name, words), element("dd", value));
    if (card.textContent === called(peer) + list.textContent) return;
    card.replaceChildren(element("h2", called(peer)), list);
  }
}

function facts(peer, state, picture, job) {
  const edges = picture.exchanges.filter((one) => one.one === peer.id || one.other === peer.id);
  const ours = edges.find((one) => one.one === picture.me || one.other === picture.me);
  const known = (value, format) => (value == null ? "" : format(value));
  return [
    ["peer", `…${short(peer.id)}`, "id"],
    ["role", clean(peer.role, 16)],
    ["condition", peer.me ? picture.condition : peer.present ? "present" : "does not answer"],
    ["community", peer.community ? communityName(peer.community, picture) : ""],
    ["circle", named(state.circle, picture, job)],
    ["round", known(state.round, whole)],
    ["loss", known(state.loss, number)],
    ["accuracy", known(state.accuracy, percent)],
    ["steps_per_second", known(state.steps_per_second, (value) => `${whole(value)} steps/s`)],
    ["head", known(state.head, whole)],
    ["shards", known(state.shards, whole)],
    ...(state.figures ?? []).map((one) => [reported(one), figure(one.value, one.unit, picture)]),
    ["similarity", peer.me ? "" : known(peer.similarity, fixed)],
    ["reached", peer.reached ?? ""],
    ["latency_ms", known(peer.latency_ms, (value) => `${Math.round(value)} ms`)],
    ["bytes_per_second", known(peer.bytes_per_second, (value) => `${bytes(value)}/s`)],
    ["exchange", edges.length ? `${edges.length} peer${edges.length === 1 ? "" : "s"}` : "", "exchanges with"],
    ["exchange.count", ours && !peer.me ? `${ours.count}, ${bytes(ours.sent_bytes + ours.received_bytes)}` : "", "exchanges with this node"],
    ["reason", clean(peer.reason, 120)],
    ["faults", peer.faults ? whole(peer.faults) : ""],
  ];
}

function swatch(colour, text, kind = "dot", word = "") {
  return word ? term("span", word, "", {}, mark(colour, kind), text) : element("span", "", {}, mark(colour, kind), text);
}

function similarityScale(dark) {
  const scale = mark(`linear-gradient(90deg, ${similarityColour(0, dark)}, ${similarityColour(1, dark)})`, "scale");
  return term("span", "similarity", "", {}, "models differ ", scale, " are similar");
}
