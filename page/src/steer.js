// Pause, resume, leave and limits, for who opened the page with the node's token.
import { by, bytes, clean, write } from "./format.js";

const LIMITS = ["max-upload", "max-download", "max-cpu"];

export class Steering {
  constructor() {
    this.token = takeToken();
    by("steer").hidden = !this.token;
    write(
      by("steer-why"),
      this.token ? "You opened this page with the node's token." : "Open the link that was printed when the node started: it carries the token that steering needs.",
    );
    by("pause").addEventListener("click", () => this.order("pause"));
    by("resume").addEventListener("click", () => this.order("resume"));
    by("leave").addEventListener("click", () => {
      if (confirm("Leave the run? The node says goodbye and stops.")) this.order("leave");
    });
    by("limits").addEventListener("submit", (event) => {
      event.preventDefault();
      this.limit();
    });
  }

  show(guest = {}) {
    by("pause").hidden = Boolean(guest.paused);
    by("resume").hidden = !guest.paused;
    const words = (value) => (value == null ? "no limit" : `now ${bytes(value)}/s`);
    write(by("upload-now"), words(guest.max_upload));
    write(by("download-now"), words(guest.max_download));
    write(by("cpu-now"), guest.max_cpu == null ? "no limit" : `now ${Math.round(100 * guest.max_cpu)} %`);
  }

  // What is left empty stays as it is; the node says what is wrong with the rest.
  limit() {
    const given = LIMITS.map((name) => [name, by(name).value.trim()]).filter(([, words]) => words);
    return given.length ? this.order("limits", Object.fromEntries(given)) : this.say("Write a limit first, or off for none.");
  }

  async order(what, body = null) {
    try {
      const headers = { Authorization: `Bearer ${this.token}`, ...(body && { "Content-Type": "application/json" }) };
      const answer = await fetch(`api/${what}`, { method: "POST", headers, body: body && JSON.stringify(body) });
      const text = await answer.text();
      const told = text.startsWith("{") ? JSON.parse(text) : { problem: text };
      this.say(told.said ?? told.problem);
    } catch {
      this.say("The node did not answer.");
    }
  }

  say(words) {
    write(by("steer-said"), clean(words, 300));
  }
}

// The token comes behind the # of the link, which browsers send to nobody; it goes from the address bar at once.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") ?? "";
}
