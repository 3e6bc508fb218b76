// The condition of the node in plain words: a title, what it means, what to do. Pure.
import { clean, clock, pausedBecause } from "./format.js";

const MOODS = { connected: "good", alone: "good", starting: "warn", searching: "warn", leaving: "warn", "network down": "bad" };

export function pill(picture, lostSince) {
  if (lostSince != null) return ["no answer", "bad"];
  if (!picture) return ["connecting …", ""];
  if (picture.paused) return ["paused", "warn"];
  return [picture.condition, MOODS[picture.condition] ?? ""];
}

export function stateOf(picture, lostSince) {
  if (lostSince != null) return lost(picture, lostSince);
  if (!picture) return { mood: "", title: "Connecting to the node …", text: "" };
  const reason = clean(picture.reason, 300).replace(/^./u, (letter) => letter.toUpperCase());
  if (picture.condition === "starting") return { mood: "", title: "The node is starting", text: "It is looking for its network and its run." };
  if (picture.condition === "leaving") return { mood: "warn", title: "The node is leaving the run", text: "It says goodbye to its peers and stops." };
  if (picture.condition === "network down") return { mood: "bad", title: "The network is down", text: `${reason}. It comes back by itself.` };
  if (picture.condition === "searching") return searching(picture, reason);
  if (picture.paused) return { mood: "warn", title: pausedBecause(picture.paused), text: "The node stays in the swarm and answers its peers. It trains nothing until it is resumed." };
  if (picture.condition === "alone") return { mood: "good", title: "Nobody else is here yet", text: picture.invite ? "The node trains by itself. Send a friend the invite on the tab Node." : "The node waits for others." };
  return null;
}

function lost(picture, lostSince) {
  const since = clock(lostSince / 1000);
  if (picture?.condition === "leaving") {
    return { mood: "warn", title: "The node left", text: `It has not answered since ${since}. Start it again with the same command: it continues where it was, and this page reconnects by itself.` };
  }
  return { mood: "bad", title: "Connection lost", text: `The node has not answered since ${since}. It may have been stopped. This page tries again by itself and shows the last picture it got.` };
}

function searching(picture, reason) {
  if (/speaks? protocol \d+/.test(reason)) return { mood: "bad", title: "Another version of p2pnode is there", text: `${reason}. Nodes of different protocol numbers do not talk: update the older one.` };
  if (/no member of run/.test(reason)) return { mood: "warn", title: "The run was not found yet", text: `${reason}. Is the invite whole, and is one of the run's members up? The node goes on looking by itself.` };
  if (!picture.run) return { mood: "warn", title: "Nobody answers yet", text: `${reason}. Is the address right, and is the other side up? The node goes on trying by itself.` };
  return { mood: "warn", title: "No peer answers", text: `${reason}. The node goes on looking by itself.` };
}
