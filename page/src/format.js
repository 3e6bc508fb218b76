// Words and numbers for people. Everything a peer can set reaches the page as text, never as markup.

export const percent = (value, digits = 1) => (value == null ? "–" : `${(100 * value).toFixed(digits)} %`);
export const number = (value, digits = 3) => (value == null ? "–" : Number(value).toPrecision(digits));
export const whole = (value) => (value == null ? "–" : Math.round(value).toLocaleString("en"));
export const short = (id) => id.slice(-8);
export const clock = (time) => new Date(1000 * time).toLocaleTimeString("en-GB");

export function bytes(count) {
  if (count == null) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  while (count >= 1000 && at < units.length - 1) {
    count /= 1000;
    at += 1;
  }
  return `${at === 0 ? count : count.toPrecision(3)} ${units[at]}`;
}

export function ago(seconds) {
  if (seconds == null) return "never";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  return seconds < 5400 ? `${Math.round(seconds / 60)} min ago` : `${Math.round(seconds / 3600)} h ago`;
}

export function clean(text, most = 60) {
  const plain = String(text ?? "").replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, "");
  return plain.length > most ? `${plain.slice(0, most - 1)}…` : plain;
}

export function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

export function definitions(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([term, value]) => {
      const pair = document.createElement("div");
      pair.append(element("dt", term), element("dd", value));
      return pair;
    }),
  );
}
