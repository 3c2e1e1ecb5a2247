// Sections of a page that are rebuilt only when their data changes, so that folds, selections and the focus elsewhere
// survive updates.
//
//   const sections = new Sections(root);
//   sections.show("drains", detail.drains, () => drains(detail));     // null: the part is not there
//
// `fold` remembers by its key whether it is open.

import { h, icon } from "./dom.js";

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

export class Sections {
  #parts = new Map();

  // The page decides where the section goes: it inserts `place(key)`.
  place(key) {
    if (!this.#parts.has(key)) this.#parts.set(key, { element: h("div", { class: "section", hidden: true }), serialized: undefined });
    return this.#parts.get(key).element;
  }

  show(key, data, build) {
    const part = (this.place(key), this.#parts.get(key));
    const serialized = JSON.stringify(data) ?? "";
    if (part.serialized === serialized) return;
    part.serialized = serialized;
    const held = [...part.element.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    const made = build(data);
    part.element.replaceChildren(...(made ? [made] : []));
    part.element.hidden = !made;
    if (held >= 0) [...part.element.querySelectorAll(FOCUSABLE)][held]?.focus({ preventScroll: true });
  }
}

const open = new Map();

export function fold(key, title, { isOpen = false, note = "" } = {}, ...children) {
  const element = h(
    "details",
    { class: "fold", open: open.get(key) ?? isOpen, ontoggle: () => open.set(key, element.open) },
    h("summary", {}, icon("open"), h("span", {}, title), note ? h("span", { class: "note" }, note) : null),
    children,
  );
  return element;
}
