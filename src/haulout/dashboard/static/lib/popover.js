// A card that floats next to its anchor. It is a child of the body, as other containers would clip it.

import { h, replace } from "./dom.js";

const GAP = 8;

export class Floating {
  #element;

  constructor(className) {
    this.#element = h("div", { class: className, role: "tooltip", hidden: true });
    document.body.append(this.#element);
  }

  // Below `box` (of what it is about) or else above it, from `left` on.
  show(content, box, left) {
    replace(this.#element, content);
    this.#element.hidden = false;
    const { width, height } = this.#element.getBoundingClientRect();
    const isBelow = box.bottom + GAP + height < innerHeight;
    this.#element.style.left = `${Math.max(GAP, Math.min(left, document.documentElement.clientWidth - width - GAP))}px`;
    this.#element.style.top = `${isBelow ? box.bottom + GAP : Math.max(GAP, box.top - height - GAP)}px`;
  }

  get isShown() {
    return !this.#element.hidden;
  }

  hide() {
    this.#element.hidden = true;
  }

  end() {
    this.#element.remove();
  }
}
