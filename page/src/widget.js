// The peer graph in a notebook: the graph of the page, fed by a Python view. Python owns the pictures; the slider asks
// for one by its index, −1 for the latest, and Python sends it.
import { ago, bytes, clean, element, inJob, inRun, mark, number, percent, whole } from "./format.js";
import { Graph, circleName, communityName, groupName } from "./graph.js";

const STYLE = `
.p2pnode { font: 13px system-ui, sans-serif; border: 1px solid #8884; border-radius: 8px; padding: 8px; position: relative; }
.p2pnode[data-theme="light"] { background: #fff; color: #1c2430; }
.p2pnode[data-theme="dark"] { background: #171e28; color: #e7ecf3; }
.p2pnode canvas { width: 100%; height: 420px; display: block; touch-action: none; cursor: grab; }
.p2pnode canvas:focus-visible { outline: 2px solid #2f6fed; outline-offset: 2px; border-radius: 6px; }
.p2pnode .time { display: flex; gap: 10px; align-items: center; padding-top: 6px; }
.p2pnode input { flex: 1; accent-color: #2f6fed; }
.p2pnode button { font: inherit; color: inherit; background: none; border: 1px solid #8886; border-radius: 6px; padding: 2px 10px; }
.p2pnode button[aria-pressed="true"] { background: #2f6fed; border-color: #2f6fed; color: #fff; }
.p2pnode .moment { min-width: 9em; text-align: right; font-variant-numeric: tabular-nums; }
.p2pnode .legend { display: flex; flex-wrap: wrap; gap: 4px 14px; min-height: 1.4em; }
.p2pnode .legend i { display: inline-block; width: 10px; height: 10px; border-radius: 5px; margin-right: 5px; }
.p2pnode dl { position: absolute; right: 12px; top: 40px; margin: 0; padding: 8px 12px; border-radius: 8px; display: grid;
  grid-template-columns: auto auto; gap: 2px 12px; background: #8881; backdrop-filter: blur(6px); max-width: 45%; }
.p2pnode dl:empty { display: none; }
.p2pnode dt { opacity: 0.7; } .p2pnode dd { margin: 0; overflow-wrap: anywhere; }`;

function render({ model, el }) {
  const box = element("div", "", { class: "p2pnode", "data-theme": theme() });
  const canvas = element("canvas", "", { tabindex: "0", role: "img", "aria-label": "the peer graph; arrow keys choose a peer" });
  const legend = element("div", "", { class: "legend" });
  const card = element("dl", "", { "aria-live": "polite" });
  const time = timeLine(model);
  box.append(element("style", STYLE), legend, canvas, card, time.row);
  el.replaceChildren(box);
  const graph = new Graph(canvas, () => show());

  function show() {
    const picture = model.get("picture");
    if (!picture?.peers) return;
    showLegend(legend, picture, graph);
    showCard(card, picture, graph.selected, model.get("labels"));
    time.show(picture);
  }
  function take() {
    const picture = model.get("picture");
    if (picture?.peers) graph.show(picture);
    show();
  }
  const changes = ["change:picture", "change:moments", "change:at"];
  for (const change of changes) model.on(change, change === "change:picture" ? take : show);
  take();
  return () => {
    graph.simulation.stop();
    model.off(null, null, null);
  };
}

// Notebooks mark in different places whether they are dark; elsewhere the system knows.
function theme() {
  const { body } = document;
  const marked = body.dataset.jpThemeLight ?? (body.dataset.vscodeThemeKind ? String(!body.dataset.vscodeThemeKind.includes("dark")) : null);
  const light = marked === null ? !matchMedia("(prefers-color-scheme: dark)").matches : marked === "true";
  return light ? "light" : "dark";
}

function timeLine(model) {
  const row = element("div", "", { class: "time" });
  const slider = element("input", "", { type: "range", min: "0", step: "1", "aria-label": "time" });
  const now = element("button", "now", { type: "button" });
  const moment = element("span", "", { class: "moment" });
  row.append(slider, moment, now);
  const go = (at) => {
    model.set("at", at);
    model.save_changes();
  };
  slider.addEventListener("input", () => go(Number(slider.value) >= Number(slider.max) ? -1 : Number(slider.value)));
  now.addEventListener("click", () => go(-1));
  const show = (picture) => {
    const [moments, at] = [model.get("moments"), model.get("at")];
    slider.max = String(Math.max(0, moments.length - 1));
    slider.value = String(at < 0 ? moments.length - 1 : at);
    now.setAttribute("aria-pressed", String(at < 0));
    moment.textContent = `${Math.round(picture.time - moments[0])} s`;
    slider.setAttribute("aria-valuetext", moment.textContent);
    row.style.display = moments.length > 1 ? "" : "none";
  };
  return { row, show };
}

function showLegend(legend, picture, graph) {
  const parts = [element("b", inRun(picture))];
  for (const group of [...graph.palette.keys()].filter(Boolean)) {
    parts.push(element("span", "", {}, mark(graph.colourOf(group)), groupName(group, picture)));
  }
  if (picture.condition !== "connected") parts.push(element("em", clean(picture.reason || picture.condition, 120)));
  legend.replaceChildren(...parts);
}

function showCard(card, picture, selected, labels) {
  const peer = picture.peers.find((one) => one.id === selected);
  if (!peer) return card.replaceChildren();
  const state = inJob(peer);
  const edges = picture.exchanges.filter((edge) => edge.one === peer.id || edge.other === peer.id);
  const moved = edges.reduce((sum, edge) => sum + edge.sent_bytes + edge.received_bytes, 0);
  const pairs = [
    ["peer", clean(peer.name, 40) || "(no name)"],
    ["community", peer.community ? communityName(peer.community, picture) : ""],
    ["circle", state.circle ? circleName(state.circle, picture) : ""],
    ["round", state.round == null ? "" : whole(state.round)],
    ["loss", state.loss == null ? "" : number(state.loss)],
    ["accuracy", state.accuracy == null ? "" : percent(state.accuracy)],
    ["exchanges", edges.length ? `with ${edges.length}, ${bytes(moved)}` : ""],
    ["condition", peer.present ? "" : `does not answer, last heard ${ago(peer.heard_seconds_ago)}`],
  ];
  const known = pairs.filter(([, value]) => value);
  card.replaceChildren(...known.flatMap(([name, value]) => [element("dt", labels[name] ?? name), element("dd", value)]));
}

export default { render };
