// What the node shows, now and before. Loses the connection and finds it again by itself.

const MOST = 900; // pictures kept in the page

export class Store extends EventTarget {
  constructor() {
    super();
    this.pictures = [];
    this.at = null; // index shown; null: the newest
    this.lost = "";
  }

  get shown() {
    return this.at == null ? this.newest : this.pictures[this.at];
  }

  get newest() {
    return this.pictures.at(-1);
  }

  async start() {
    try {
      const answer = await fetch("api/past");
      if (answer.ok) this.pictures = await answer.json();
    } catch {}
    this.listen();
    this.tell();
  }

  listen() {
    const source = new EventSource("api/live");
    source.addEventListener("view", (event) => this.add(JSON.parse(event.data)));
    source.onerror = () => {
      this.lost = "The node does not answer. It may have left or been stopped; this page tries again by itself.";
      this.tell();
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.listen(), 2000);
    };
  }

  add(picture) {
    this.lost = "";
    if (this.newest && picture.time <= this.newest.time) return this.tell();
    this.pictures.push(picture);
    if (this.pictures.length > MOST) {
      this.pictures.splice(0, this.pictures.length - MOST);
      if (this.at != null) this.at = Math.max(0, this.at - 1);
    }
    this.tell();
  }

  scrub(index) {
    this.at = index >= this.pictures.length - 1 ? null : index;
    this.tell();
  }

  tell() {
    this.dispatchEvent(new Event("change"));
  }
}
