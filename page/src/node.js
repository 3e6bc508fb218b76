// This node: what it does and why, the load of the machine, events, the invite, and steering.
import qrcode from "qrcode-generator";
import { Chart } from "./chart.js";
import { withGaps } from "./curves.js";
import { ago, barLine, by, bytes, called, clean, clock, drawn, element, fixed, flat, pausedBecause, percent, plural, whole, write } from "./format.js";
import { label, term } from "./glossary.js";
import { Steering } from "./steer.js";
import { Asked } from "./store.js";
import { definitions } from "./tables.js";

const LATELY = 8; // partners and warnings shown
const DECISIONS = new Set(["shipped", "received", "quarantined", "handing over", "circle", "paused", "working", "slowed", "reverted"]); // kinds of events

export class NodeView {
  constructor(store) {
    this.store = store;
    this.steering = new Steering();
    this.traffic = new Chart(by("chart-traffic"), [[label("traffic.sent_bytes"), "--accent"], [label("traffic.received_bytes"), "--good"]], { axis: "kB/s", unit: "kB/s", height: 160 });
    this.share = null; // of the weights, by this node
    this.lineage = new Asked(() => store.address("api/lineage"), 20, ({ shares }) => this.own(shares));
    by("copy").addEventListener("click", () => this.copy());
  }

  open() {
    this.lineage.open();
  }

  close() {
    this.lineage.close();
  }

  own(shares) {
    const mine = Object.values(shares[this.store.latest?.me] ?? {});
    this.share = mine.length ? mine.reduce((sum, share) => sum + share, 0) / mine.length : Object.keys(shares).length ? 0 : null;
    this.show();
  }

  show() {
    const picture = this.store.latest;
    if (!picture) return;
    this.doing(picture);
    this.partners(picture);
    this.machine(picture);
    this.events(picture);
    this.reputation(picture);
    this.invite(picture.invite);
    this.phone(picture.page);
    this.steering.show(picture);
    const pictures = withGaps(this.store.pictures);
    this.traffic.draw([pictures.map((one) => one.time), rate(pictures, "sent_bytes"), rate(pictures, "received_bytes")]);
    this.contribution(picture);
  }

  doing(picture) {
    const { traffic } = picture;
    const jobs = Object.values(picture.jobs).map(flat);
    const sum = (value) => (jobs.length ? whole(jobs.reduce((total, job) => total + (value(job) ?? 0), 0)) : "–");
    const [title, ...reasons] = doing(picture);
    write(by("doing"), title);
    write(by("doing-reason"), [...reasons, clean(picture.reason, 200)].filter(Boolean).join(" · "));
    write(by("id"), picture.me);
    definitions(by("facts"), [
      ["nodes", whole(picture.peers.filter((peer) => peer.present && !peer.me && peer.role === "node").length)],
      ["observers", whole(picture.peers.filter((peer) => peer.present && peer.role === "observer").length)],
      ["exchanges", sum((job) => job.exchanges)],
      ["entries", sum((job) => job.entries)],
      ["traffic.sent_bytes", bytes(traffic.sent_bytes)],
      ["traffic.received_bytes", bytes(traffic.received_bytes)],
      ["calls_made", whole(traffic.calls_made)],
      ["calls_served", whole(traffic.calls_served)],
      ["refused", whole(traffic.refused)],
    ]);
  }

  // What this node gave to the run, restarts included.
  contribution(picture) {
    const { status, job } = this.store;
    by("contribution-panel").hidden = !status;
    if (!status) return;
    definitions(by("contribution"), [
      ["round", whole(status.state.round), "rounds done"],
      ["steps", whole(status.steps)],
      ["head", whole(status.state.head)],
      ["sent_total", bytes(sentInAll(this.store.pictures))],
      ["lineage_share", percent(this.share)],
    ]);
    const nodes = picture.peers.filter((peer) => peer.jobs?.[job]).length;
    write(by("contribution-words"), this.share == null || nodes < 2 ? "" : `An equal part among the ${whole(nodes)} nodes known in this job would be ${percent(1 / nodes)}.`);
  }

  // The latest partners, and why they were chosen.
  partners(picture) {
    const last = new Map();
    for (const edge of picture.exchanges) {
      if (edge.one === picture.me) last.set(edge.other, edge);
      else if (edge.other === picture.me) last.set(edge.one, edge);
    }
    const chosen = picture.peers.filter((peer) => !peer.me && (peer.reason || last.has(peer.id)));
    chosen.sort((a, b) => (last.get(b.id)?.last ?? 0) - (last.get(a.id)?.last ?? 0));
    const rows = chosen.slice(0, LATELY).map((peer) => {
      const edge = last.get(peer.id);
      const facts = [edge && ago(picture.time - edge.last), edge && bytes(edge.sent_bytes + edge.received_bytes), peer.similarity != null && `${label("similarity")} ${fixed(peer.similarity)}`];
      return element("li", "", {}, element("b", called(peer)), element("span", clean(peer.reason, 140) || "it chose this node"), element("small", facts.filter(Boolean).join(" · ")));
    });
    fill(by("partners"), rows, "No partner yet: choices and their reasons appear here.");
  }

  machine({ machine, limits }) {
    by("machine-panel").hidden = !machine;
    if (!machine) return;
    const limit = limits?.max_cpu == null ? "" : `, at most ${percent(limits.max_cpu, 0)}`;
    const all = machine.memory_bytes + machine.memory_free_bytes;
    const meters = [
      ["machine.cpu", machine.cpu, percent(machine.cpu, 0)],
      ["own_cpu", machine.own_cpu, percent(machine.own_cpu, 0) + limit],
      ["memory_bytes", machine.memory_bytes / Math.max(1, all), `${bytes(machine.memory_bytes)}, ${bytes(machine.memory_free_bytes)} free`],
    ];
    if (machine.battery != null) meters.push(["battery", machine.battery, percent(machine.battery, 0) + (machine.on_battery ? ", not charging" : "")]);
    by("machine").replaceChildren(...meters.map(([name, share, text]) => barLine(term("span", name), share, text, share > 0.9 ? "bar high" : "bar")));
  }

  events(picture) {
    const item = (event) => element("li", "", event.warning ? { class: "warning" } : {}, element("time", clock(event.time)), element("span", clean(event.text, 400)));
    const key = picture.events.map((event) => event.time + event.text).join();
    if (key === this.shownEvents) return;
    this.shownEvents = key;
    const latest = [...picture.events].reverse();
    fill(by("events"), latest.map(item), "Nothing yet.");
    const decided = latest.filter((event) => DECISIONS.has(event.kind)).slice(0, LATELY);
    by("decisions-panel").hidden = !decided.length;
    fill(by("decisions"), decided.map((event) => element("li", "", {}, element("b", event.kind), element("span", clean(event.text, 300)), element("small", clock(event.time)))), "");
    fill(by("warnings"), latest.filter((event) => event.warning).slice(0, LATELY).map(item), "No warnings.");
  }

  reputation(picture) {
    const bad = picture.peers.filter((peer) => peer.faults > 0).sort((a, b) => b.faults - a.faults);
    const rows = bad.slice(0, LATELY).map((peer) => element("li", "", {}, element("b", called(peer)), element("span", `${plural(peer.faults, "fault")}: it broke the rules`)));
    fill(by("reputation"), rows, "No peer has broken the rules.");
  }

  invite(command) {
    if (this.invited === command) return;
    this.invited = command;
    by("invite").textContent = command || "It is shown in the terminal only: that of a private run contains its key.";
    by("copy").hidden = !command;
  }

  // A phone opens the page by its camera; a command would be of no use to it.
  phone(link) {
    if (this.linked === link) return;
    this.linked = link;
    write(by("phone-hint"), link ? "Anybody in this network can read this page here; steering needs the token:" : "Only this machine can open this page. To open it on a phone, start the node with --dashboard 0.0.0.0:8080.");
    by("phone-link").replaceChildren(...(link ? [element("a", link, { href: link })] : []));
    by("qr").replaceChildren(...(link ? [qr(link)] : []));
  }

  async copy() {
    const button = by("copy");
    try {
      await navigator.clipboard.writeText(by("invite").textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy it by hand";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }
}

// What the node does, and why where it does less than it could.
function doing({ condition, jobs, paused }) {
  if (paused) return [pausedBecause(paused)];
  if (condition === "leaving") return ["Leaving the run"];
  const running = Object.entries(jobs).filter(([, job]) => job.condition === "running");
  if (!running.length) return [condition === "searching" ? "Looking for its run" : "In touch with its peers; it trains nothing"];
  const titles = running.map(([name, job]) => (job.train ? training(job.train, flat(job.state)) : `working on ${clean(name, 40)} (${clean(job.kind, 40)})`));
  const reasons = running.map(([, job]) => clean(job.train?.slowed, 300));
  return [titles.join("; ").replace(/^./u, (letter) => letter.toUpperCase()), ...reasons];
}

function training({ task, samples, slowed }, state) {
  if (slowed) return `slowed down at round ${whole(state.round)} of ${clean(task, 40)}`;
  return `training ${clean(task, 40)}, round ${whole((state.round ?? 0) + 1)}: ${samples ? `${whole(samples)} samples at ` : ""}${whole(state.steps_per_second)} steps a second`;
}

function fill(list, items, otherwise) {
  const made = items.length ? items : [element("li", otherwise, { class: "dim" })];
  if (made.map((item) => item.textContent).join() === [...list.children].map((item) => item.textContent).join()) return;
  list.replaceChildren(...made);
}

// The counter begins anew with each start of the node.
function sentInAll(pictures) {
  let [total, before] = [0, 0];
  for (const { traffic } of pictures) {
    total += traffic.sent_bytes >= before ? traffic.sent_bytes - before : traffic.sent_bytes;
    before = traffic.sent_bytes;
  }
  return total;
}

function rate(pictures, field) {
  return pictures.map((picture, at) => {
    const before = pictures[at - 1];
    if (!picture.traffic || !before?.traffic) return null;
    return Math.max(0, picture.traffic[field] - before.traffic[field]) / 1000 / Math.max(0.001, picture.time - before.time);
  });
}

function qr(words) {
  const code = qrcode(0, "L");
  code.addData(words);
  code.make();
  const [count, quiet] = [code.getModuleCount(), 4]; // modules that stay white around it, without which cameras miss it
  let path = "";
  for (let y = 0; y < count; y++) for (let x = 0; x < count; x++) if (code.isDark(y, x)) path += `M${x} ${y}h1v1h-1z`;
  return drawn("svg", { viewBox: `${-quiet} ${-quiet} ${count + 2 * quiet} ${count + 2 * quiet}` }, drawn("path", { d: path }));
}
