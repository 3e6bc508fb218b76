// What the node shows, now and before. It reconnects by itself.
import { firstJob, flat, inJob } from "./format.js";

const MAX_PICTURES = 900; // pictures kept in the page
const MAX_ROWS = 200_000; // peers and exchanges in all of them together
const rowsOf = (picture) => picture.peers.length + picture.exchanges.length;
const AGAIN = 2000; // milliseconds until a closed stream is opened anew

export class Store extends EventTarget {
  constructor() {
    super();
    this.pictures = [];
    this.at = null; // index shown; null: the latest
    this.chosen = null; // name of the chosen job; null: the first that trains
    this.recalled = ""; // the run whose past was fetched
    this.lostSince = null; // milliseconds; null while the node answers
    this.rows = 0;
    this.parts = new WeakMap(); // by picture, its part for one job
  }

  get shown() {
    return this.at == null ? this.latest : this.ofJob(this.pictures[this.at]);
  }

  get latest() {
    return this.ofJob(this.pictures.at(-1));
  }

  // A picture with the exchanges of the job that is shown, and with what peers are to this node in that job.
  ofJob(picture) {
    if (!picture || Object.keys(picture.jobs).length < 2) return picture;
    const job = this.jobIn(picture);
    const known = this.parts.get(picture);
    if (known?.job === job) return known.part;
    const peers = picture.peers.map((peer) => (peer.relations?.[job] ? { ...peer, community: "", similarity: null, reason: "", ...peer.relations[job] } : peer));
    const part = { ...picture, peers, exchanges: picture.exchanges.filter((edge) => !edge.job || edge.job === job) };
    this.parts.set(picture, { job, part });
    return part;
  }

  // The name of the job that the views show; undefined where this node has none.
  get job() {
    return this.jobIn(this.pictures.at(-1));
  }

  jobIn({ jobs } = { jobs: {} }) {
    return this.chosen in jobs ? this.chosen : firstJob(jobs);
  }

  // This node's status in that job; undefined where it has none.
  get status() {
    const status = this.latest?.jobs[this.job];
    return status && { ...flat(status), state: flat(status.state) };
  }

  // A peer's state in that job.
  state(peer) {
    return inJob(peer, this.job);
  }

  // The address of something that is asked about that job.
  address(path, more = {}) {
    return `${path}?${new URLSearchParams({ job: this.job ?? "", ...more })}`;
  }

  choose(job) {
    this.chosen = job;
    this.tell();
  }

  // The latest picture first, the past when it has arrived.
  async start() {
    this.listen();
    await this.recall();
    this.tell();
  }

  // Fetch what the node remembers and put it before what came since.
  async recall() {
    try {
      const answer = await fetch("api/past");
      if (!answer.ok) return;
      const past = await answer.json();
      const last = past.at(-1)?.time ?? 0;
      this.recalled = past.at(-1)?.run || this.recalled;
      this.pictures = [...past, ...this.pictures.filter((picture) => picture.time > last && picture.me === past.at(-1)?.me)];
      this.at = null;
      this.thin();
    } catch {}
  }

  listen() {
    const source = (this.source = new EventSource("api/live"));
    source.addEventListener("view", (event) => this.add(JSON.parse(event.data)));
    source.onerror = () => {
      this.lostSince ??= Date.now();
      this.tell();
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.listen(), AGAIN);
    };
  }

  close() {
    this.source?.close();
  }

  async add(picture) {
    if (this.lostSince != null || (picture.run && this.recalled !== picture.run)) {
      this.lostSince = null;
      this.recalled = picture.run;
      await this.recall(); // what happened in the meantime, or before the node was started again
    }
    if (this.latest && this.latest.me !== picture.me) this.pictures = []; // another node answers here now
    if (!this.latest || picture.time > this.latest.time) {
      this.pictures.push(picture);
      this.rows += rowsOf(picture);
      if (this.pictures.length > MAX_PICTURES || this.rows > MAX_ROWS) this.thin();
    }
    this.tell();
  }

  // When there are too many, every other picture of the older half goes.
  thin() {
    const count = () => (this.rows = this.pictures.reduce((sum, picture) => sum + rowsOf(picture), 0));
    while (this.pictures.length > 4 && (this.pictures.length > MAX_PICTURES || count() > MAX_ROWS)) {
      const [half, shown] = [this.pictures.length >> 1, this.at == null ? null : this.pictures[this.at]];
      this.pictures = this.pictures.filter((picture, at) => at >= half || at % 2 === 0 || picture === shown);
      if (shown) this.at = this.pictures.indexOf(shown);
    }
    count();
  }

  scrub(index) {
    this.at = index >= this.pictures.length - 1 ? null : Math.max(0, index);
    this.tell();
  }

  tell() {
    this.dispatchEvent(new Event("change"));
  }
}

// Asks the node for something again and again while somebody looks at it. `path` may be a function.
export class Asked {
  constructor(path, seconds, show) {
    Object.assign(this, { path, seconds, show, timer: null, value: null });
  }

  open() {
    if (this.timer == null) this.ask();
  }

  close() {
    clearTimeout(this.timer);
    this.timer = null;
  }

  async ask() {
    const mine = (this.timer = setTimeout(() => this.ask(), 1000 * this.seconds));
    try {
      const answer = await fetch(typeof this.path === "function" ? this.path() : this.path);
      if (answer.ok) this.value = await answer.json();
    } catch {
      return; // the banner says that the node does not answer
    }
    if (this.timer === mine) this.show(this.value);
  }
}
