// A file editor: line numbers, and marks at lines with findings or changes. The text is in an ordinary textarea, so that
// undo, search and spell checking of the browser work.
//
//   const editor = new Editor("Another configuration", { changed(text) {…} });
//   editor.text = "…"; editor.mark({ findings, changed: new Set([3]) }); editor.jump(7);

import { h, replace } from "./dom.js";
import { byLine, levelOf } from "./findings.js";

const LINE = 20; // pixels; the style sheet says the same

export class Editor {
  #gutter = h("div", { class: "editor-gutter", "aria-hidden": "true" });
  #field;
  #marks = { findings: [], changed: new Set() };
  #count = 0;
  element;

  constructor(label, { changed }) {
    this.#field = h("textarea", { class: "editor-field", "aria-label": label, spellcheck: "false", autocomplete: "off", autocapitalize: "off", wrap: "off" });
    this.element = h("div", { class: "editor" }, h("div", { class: "editor-side" }, this.#gutter), this.#field);
    this.#field.addEventListener("input", () => {
      this.#number();
      changed(this.#field.value);
    });
    this.#field.addEventListener("scroll", () => this.#follow(), { passive: true });
  }

  get text() {
    return this.#field.value;
  }

  set text(text) {
    this.#field.value = text;
    this.#number();
  }

  mark(marks) {
    this.#marks = marks;
    this.#draw();
  }

  jump(line) {
    const lines = this.#field.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.#field.focus();
    this.#field.setSelectionRange(start, start + (lines[line - 1]?.length ?? 0));
    this.#field.scrollTop = Math.max(0, (line - 1) * LINE - this.#field.clientHeight / 2);
    this.#field.scrollLeft = 0;
  }

  #number() {
    const count = this.#field.value.split("\n").length;
    if (count !== this.#count) this.#draw(count);
  }

  #draw(count = this.#count) {
    this.#count = count;
    const wrong = byLine(this.#marks.findings);
    const line = (_, index) => {
      const found = wrong.get(index + 1);
      const isBad = found?.some((it) => levelOf(it) === "critical");
      return h("span", { class: [found && (isBad ? "is-bad" : "is-doubtful"), this.#marks.changed.has(index + 1) && "is-changed"], title: found?.map((it) => it.message).join("\n") }, String(index + 1));
    };
    replace(this.#gutter, Array.from({ length: count }, line));
    this.#follow();
  }

  #follow() {
    this.#gutter.style.transform = `translateY(${-this.#field.scrollTop}px)`;
  }
}
