// Labels and explanations of everything shown, from the node's table of figures and docs/concepts.md.
import { FIGURES, WORDS } from "./figures.js";
import { clean, element } from "./format.js";

// What another kind of work says of a figure that it reports.
export const reported = ({ label, name, help }) => ({ label: clean(label || name), meaning: clean(help, 200) });

// The label of a figure or a word, and what it means. Throws where something without a definition is shown.
export function defined(name) {
  if (typeof name === "object") return name;
  if (name in FIGURES) return { label: FIGURES[name][0], meaning: FIGURES[name][2] };
  if (name in WORDS) return { label: name, meaning: WORDS[name] };
  throw new Error(`${name} is not in p2pnode/watch/glossary.py, nor a word of docs/concepts.md`);
}

export const label = (name) => defined(name).label;

// A label that explains itself to who points at it or taps it.
export function term(tag, name, words = "", attributes = {}, ...inside) {
  const { label, meaning } = defined(name);
  return element(tag, words || (inside.length ? "" : label), { ...(meaning && { "data-tip": meaning }), ...attributes }, ...inside);
}

// Marks in the page: data-word is a word or a figure that gets its explanation, and its label where it has no text.
// In a sentence a word means the concept, also where a figure has the same name.
export function explainWords(root) {
  for (const place of root.querySelectorAll("[data-word]")) {
    const { word } = place.dataset;
    const { label, meaning } = word in WORDS ? { label: word, meaning: WORDS[word] } : defined(word);
    place.dataset.tip = meaning;
    place.tabIndex = 0;
    if (!place.textContent) place.textContent = label;
  }
}

// One bubble for all explanations: by pointer, by keyboard focus, by tap.
export function showTips(bubble) {
  let shown = null;
  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    bubble.hidden = true;
  };
  const show = (event) => {
    const place = event.target.closest?.("[data-tip]");
    if (place === shown) return;
    hide();
    if (!place) return;
    shown = place;
    bubble.textContent = place.dataset.tip;
    bubble.hidden = false;
    place.setAttribute("aria-describedby", bubble.id);
    const [box, size] = [place.getBoundingClientRect(), bubble.getBoundingClientRect()];
    const above = box.top > size.height + 12;
    bubble.style.left = `${Math.max(8, Math.min(innerWidth - size.width - 8, box.left))}px`;
    bubble.style.top = `${above ? box.top - size.height - 6 : box.bottom + 6}px`;
  };
  for (const kind of ["pointerover", "focusin", "click"]) document.addEventListener(kind, show);
  document.addEventListener("scroll", hide, { capture: true, passive: true });
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}
