// Pause, resume, leave and limits, for users who opened the page with the node's token.
import { by, bytes, clean, write } from "./format.js";

const LIMITS = ["max-upload", "max-download", "max-cpu"];

export class Steering {
  constructor() {
    this.token = takeToken();
    by("steer").hidden = !this.token;
    write(
      by("steer-hint"),
      this.token ? "You opened this page with the node's token." : "Open the link that was printed when the node started. It contains the token that steering needs.",
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

  show({ paused = "", limits = {} } = {}) {
    by("pause").hidden = Boolean(paused);
    by("resume").hidden = !paused;
    const limit = (value) => (value == null ? "no limit" : `now ${bytes(value)}/s`);
    write(by("upload-now"), limit(limits.max_upload));
    write(by("download-now"), limit(limits.max_download));
    write(by("cpu-now"), limits.max_cpu == null ? "no limit" : `now ${Math.round(100 * limits.max_cpu)} %`);
  }

  // Empty fields change nothing; the node answers what is wrong with the others.
  limit() {
    const given = LIMITS.map((name) => [name, by(name).value.trim()]).filter(([, text]) => text);
    return given.length ? this.order("limits", Object.fromEntries(given)) : this.say("Write a limit first, or off for none.");
  }

  async order(what, body = null) {
    try {
      const headers = { Authorization: `Bearer ${this.token}`, ...(body && { "Content-Type": "application/json" }) };
      const answer = await fetch(`api/${what}`, { method: "POST", headers, body: body && JSON.stringify(body) });
      const text = await answer.text();
      const result = text.startsWith("{") ? JSON.parse(text) : { problem: text };
      this.say(result.said ?? result.problem);
    } catch {
      this.say("The node did not answer.");
    }
  }

  say(text) {
    write(by("steer-said"), clean(text, 300));
  }
}

// The token stands behind the # of the link, which browsers send to nobody; it is removed from the address bar at once.
function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem("token") ?? "";
}
