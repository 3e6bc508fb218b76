// The page: one store, three views, tabs, theme.
import { clean, short } from "./format.js";
import { LearningView } from "./learning.js";
import { NodeView } from "./node.js";
import { Store } from "./store.js";
import { SwarmView } from "./swarm.js";

const MOODS = { connected: "good", alone: "good", starting: "warn", searching: "warn", leaving: "warn", "network down": "bad" };

const store = new Store();
const views = { swarm: new SwarmView(store), learning: new LearningView(store), node: new NodeView(store) };
const tabs = Object.keys(views).map((name) => document.getElementById(`tab-${name}`));
let current = "swarm";

function show() {
  const picture = store.newest;
  const lost = document.getElementById("lost");
  lost.hidden = !store.lost;
  lost.textContent = store.lost;
  if (!picture) return;
  const me = picture.peers.find((peer) => peer.me);
  const name = clean(me?.name) || "p2pnode";
  document.title = `${name} · p2pnode`;
  document.getElementById("name").textContent = name;
  const condition = document.getElementById("condition");
  condition.textContent = store.lost ? "no answer" : picture.condition;
  condition.className = `pill ${store.lost ? "bad" : (MOODS[picture.condition] ?? "")}`;
  document.getElementById("run").textContent = picture.run ? `run ${short(picture.run)}` : "";
  views[current].show();
}

function choose(tab) {
  current = tab.getAttribute("aria-controls");
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", String(chosen));
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  show();
}

for (const [at, tab] of tabs.entries()) {
  tab.addEventListener("click", () => choose(tab));
  tab.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const next = tabs[(at + step + tabs.length) % tabs.length];
    next.focus();
    choose(next);
  });
}

function theme(name) {
  document.documentElement.dataset.theme = name;
  localStorage.setItem("theme", name);
  show();
}

const preferred = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
document.documentElement.dataset.theme = localStorage.getItem("theme") ?? preferred;
document.getElementById("theme").addEventListener("click", () => theme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
addEventListener("resize", show);
store.addEventListener("change", show);
store.start();

globalThis.p2pnode = { store, views }; // for looking at it by hand, and for its tests
