// Gestures that move a time axis: Ctrl and the wheel, two fingers, drag, keys. Each results in a new view.

import { nowMs } from "./time.js";
import { PRESETS, panned, zoomed } from "./view.js";

const SLACK = 4; // pixels before a press becomes a drag
const SETTLED = 250; // milliseconds after the last turn of a wheel

export class Gestures {
  #element;
  #on;
  #fingers = new Map();
  #drag = null;
  #settle = 0;

  constructor(element, on) {
    this.#element = element;
    this.#on = on;
    element.addEventListener("wheel", (event) => this.#wheel(event), { passive: false });
    element.addEventListener("pointerdown", (event) => this.#down(event));
    element.addEventListener("pointermove", (event) => this.#move(event));
    for (const end of ["pointerup", "pointercancel"]) element.addEventListener(end, (event) => this.#up(event));
    element.addEventListener("click", (event) => this.#swallow(event), true);
  }

  // Returns whether the key was handled.
  key({ key }) {
    const view = this.#on.view();
    const now = nowMs();
    const moves = {
      ArrowLeft: () => panned(view, -view.length / 8, now),
      ArrowRight: () => panned(view, view.length / 8, now),
      "+": () => zoomed(view, 1 / 1.5, null, now),
      "=": () => zoomed(view, 1 / 1.5, null, now),
      "-": () => zoomed(view, 1.5, null, now),
      Home: () => ({ ...view, at: null }),
      0: () => ({ length: PRESETS["1d"], at: null }),
    };
    if (!moves[key]) return false;
    this.#on.change(moves[key](), true);
    return true;
  }

  #share(clientX) {
    const { left, width } = this.#on.area();
    return Math.min(1, Math.max(0, (clientX - left) / width));
  }

  #perPixel() {
    return this.#on.view().length / this.#on.area().width;
  }

  #wheel(event) {
    const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    if (!event.ctrlKey && !isSideways) return; // rows scroll
    event.preventDefault();
    const view = this.#on.view();
    const turn = event.deltaX || event.deltaY;
    const next = event.ctrlKey
      ? zoomed(view, Math.exp(Math.max(-100, Math.min(100, event.deltaY)) * 0.004), this.#share(event.clientX), nowMs())
      : panned(view, turn * this.#perPixel(), nowMs());
    this.#on.hide();
    this.#on.change(next, false);
    clearTimeout(this.#settle);
    this.#settle = setTimeout(() => this.#on.change(this.#on.view(), true), SETTLED);
  }

  #down(event) {
    if (event.button !== 0 || event.target.closest("button, .tl-name")) return;
    this.#fingers.set(event.pointerId, event.clientX);
    this.#drag = { view: this.#on.view(), x: event.clientX, isMoving: false, fingers: [...this.#fingers.values()] };
  }

  #move(event) {
    if (!this.#fingers.has(event.pointerId)) return;
    this.#fingers.set(event.pointerId, event.clientX);
    const drag = this.#drag;
    if (this.#fingers.size > 1) return this.#pinch(drag);
    const moved = event.clientX - drag.x;
    if (!drag.isMoving && Math.abs(moved) < SLACK) return;
    if (!drag.isMoving) this.#element.setPointerCapture(event.pointerId);
    drag.isMoving = true;
    this.#element.classList.add("is-dragged");
    this.#on.hide();
    this.#on.change(panned(drag.view, (-moved * drag.view.length) / this.#on.area().width, nowMs()), false);
  }

  #pinch(drag) {
    drag.isMoving = true;
    const [a, b] = drag.fingers;
    const [c, d] = this.#fingers.values();
    const before = Math.max(20, Math.abs(a - b));
    const after = Math.max(20, Math.abs(c - d));
    this.#on.change(zoomed(drag.view, before / after, this.#share((a + b) / 2), nowMs()), false);
  }

  #up(event) {
    if (!this.#fingers.delete(event.pointerId)) return;
    const wasMoving = this.#drag?.isMoving;
    if (this.#fingers.size) {
      this.#drag = { view: this.#on.view(), x: [...this.#fingers.values()][0], isMoving: true, fingers: [...this.#fingers.values()] };
      return;
    }
    this.#element.classList.remove("is-dragged");
    if (wasMoving) {
      this.#on.change(this.#on.view(), true);
      this.justDragged = true;
      setTimeout(() => (this.justDragged = false), 0);
    }
  }

  // Ignore the click at the end of a drag.
  #swallow(event) {
    if (!this.justDragged) return;
    event.preventDefault();
    event.stopPropagation();
  }
}
