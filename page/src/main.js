// The page: one store, a view for each tab, the theme, and the state of the node.
import { DataView } from "./data.js";
import { by, called, clean, element, inRun, short, write } from "./format.js";
import { explainWords, showTips } from "./glossary.js";
import { JobsView } from "./jobs.js";
import { LearningView } from "./learning.js";
import { LineageView } from "./lineage.js";
import { NodeView } from "./node.js";
import { pill, stateOf } from "./state.js";
import { Store } from "./store.js";
import { SwarmView } from "./swarm.js";

const store = new Store();
const views = {
  swarm: new SwarmView(store),
  jobs: new JobsView(store, (name) => choose(by(`tab-${name}`))),
  learning: new LearningView(store),
  data: new DataView(store),
  lineage: new LineageView(store),
  node: new NodeView(store),
};
const tabs = Object.keys(views).map((name) => by(`tab-${name}`));
let current = "swarm";

function show() {
  const picture = store.latest;
  const [text, mood] = pill(picture, store.lostSince);
  write(by("condition"), text);
  by("condition").className = `pill ${mood}`;
  showState(stateOf(picture, store.lostSince));
  if (!picture) return;
  const me = picture.peers.find((peer) => peer.me);
  const name = called(me);
  document.title = `${name} · p2pnode`;
  write(by("name"), name);
  const several = Object.keys(picture.jobs).length > 1;
  by("tab-jobs").hidden = !several && Object.values(picture.jobs).every((one) => one.train && !one.tables?.length);
  const job = several ? ` · job ${clean(store.job, 24)}` : "";
  const runName = picture.run_name ? clean(picture.run_name, 40) : `run ${clean(short(picture.run), 12)}`;
  write(by("run"), picture.run ? `${runName}${job} · ${inRun(picture)}` : "");
  views[current].show();
}

function showState(state) {
  const place = by("state");
  place.hidden = !state;
  place.className = `state ${state?.mood ?? ""}`;
  const text = state ? `${state.title}\n${state.text}` : "";
  if (place.dataset.text === text) return; // screen readers should read it once
  place.dataset.text = text;
  place.replaceChildren(...(state ? [element("strong", state.title), element("span", state.text)] : []));
}

function choose(tab) {
  views[current].close?.();
  current = tab.getAttribute("aria-controls");
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    by(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  tab.scrollIntoView({ block: "nearest", inline: "nearest" });
  views[current].open?.();
  show();
}

for (const tab of tabs) {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    const visible = tabs.filter((one) => !one.hidden);
    const at = visible.indexOf(tab);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: -1 }[event.key];
    if (next == null) return;
    event.preventDefault();
    const chosen = visible.at(next % visible.length);
    chosen.focus();
    choose(chosen);
  });
}

const dark = matchMedia("(prefers-color-scheme: dark)");
const chosen = () => localStorage.getItem("theme") ?? (dark.matches ? "dark" : "light");

function paint() {
  document.documentElement.dataset.theme = chosen();
  by("theme").setAttribute("aria-pressed", String(chosen() === "dark"));
  show();
}

by("theme").addEventListener("click", () => {
  localStorage.setItem("theme", chosen() === "dark" ? "light" : "dark");
  paint();
});
dark.addEventListener("change", paint);
explainWords(document);
showTips(by("tip"));
paint();
// However much comes in, the page is drawn at most once a frame, and not at all while nobody can see it.
let due = false;
function soon() {
  if (due) return;
  due = true;
  requestAnimationFrame(() => {
    due = false;
    show();
  });
}
addEventListener("resize", soon);
store.addEventListener("change", soon);
store.start();
views[current].open();

globalThis.p2pnode = { store, views }; // for the browser's console and for tests
