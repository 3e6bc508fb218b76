// This node: what it does, what happened, the invite, and steering for who has the token.
import qrcode from "qrcode-generator";
import { bytes, clean, clock, definitions, element, whole } from "./format.js";

export class NodeView {
  constructor(store) {
    this.store = store;
    this.token = takeToken();
    document.getElementById("steer").hidden = !this.token;
    document.getElementById("steer-why").textContent = this.token
      ? "You opened this page with the node's token."
      : "Open the link that was printed when the node started: it carries the token that steering needs.";
    document.getElementById("copy").addEventListener("click", () => this.copy());
    document.getElementById("leave").addEventListener("click", () => {
      if (confirm("Leave the run? The node says goodbye and stops.")) this.order("leave");
    });
  }

  show() {
    const picture = this.store.newest;
    if (!picture) return;
    const me = picture.peers.find((peer) => peer.me);
    definitions(document.getElementById("facts"), [
      ["state", picture.condition],
      ["why", clean(picture.why, 120)],
      ["peers there", whole(picture.peers.filter((peer) => peer.present && !peer.me).length)],
      ["sent", bytes(picture.traffic.sent_bytes)],
      ["received", bytes(picture.traffic.received_bytes)],
      ["calls made", whole(picture.traffic.calls_made)],
      ["calls served", whole(picture.traffic.calls_served)],
      ["refused", whole(picture.traffic.refused)],
    ]);
    document.getElementById("id").textContent = me ? me.id : "";
    this.events(picture);
    this.invite(picture.invite);
  }

  events(picture) {
    const items = [...picture.events].reverse().map((event) => {
      const item = element("li", "", event.warning ? { class: "warning" } : {});
      item.append(element("time", clock(event.time)), clean(event.text, 400));
      return item;
    });
    document.getElementById("events").replaceChildren(...items);
  }

  invite(words) {
    const place = document.getElementById("invite");
    if (this.invited === words) return;
    this.invited = words;
    place.textContent = words || "The run is private: the command with its key is in the terminal.";
    document.getElementById("qr").replaceChildren(...(words ? [qr(words)] : []));
  }

  async copy() {
    const button = document.getElementById("copy");
    try {
      await navigator.clipboard.writeText(document.getElementById("invite").textContent);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy it by hand";
    }
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }

  async order(what) {
    const why = document.getElementById("steer-why");
    try {
      const answer = await fetch(`api/${what}`, { method: "POST", headers: { Authorization: `Bearer ${this.token}` } });
      why.textContent = answer.ok ? (await answer.json()).said : (await answer.text()).trim();
    } catch {
      why.textContent = "The node did not answer.";
    }
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

function qr(words) {
  const code = qrcode(0, "L");
  code.addData(words);
  code.make();
  const count = code.getModuleCount();
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", `0 0 ${count} ${count}`);
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  let drawn = "";
  for (let y = 0; y < count; y++) for (let x = 0; x < count; x++) if (code.isDark(y, x)) drawn += `M${x} ${y}h1v1h-1z`;
  path.setAttribute("d", drawn);
  svg.append(path);
  return svg;
}
