// Keyboard shortcuts, and the dialog that lists them.
//
//   keys.on("/", "Search", focus)        keys.on("g f", "Fleet", …)        returns a function to remove it
//
// Keys typed into a field are ignored; Escape leaves the field. Keys with Ctrl, Alt or Meta are left to the browser.
// Shortcuts without a function are only listed; the page handles them. Users of speech input can turn all of them off.

import { h } from "./dom.js";

const PATIENCE = 1000; // between the two keys of a sequence, in milliseconds

export class Keys {
  #bindings = new Map();
  #prefix = "";
  #timer = 0;

  constructor(target = document) {
    target.addEventListener("keydown", (event) => this.#pressed(event));
    this.on("?", "Show these keys", () => this.sheet());
  }

  on(keys, title, act = null) {
    const binding = { keys, title, act };
    this.#bindings.set(keys, binding);
    return () => this.#bindings.get(keys) === binding && this.#bindings.delete(keys);
  }

  sheet() {
    if (document.querySelector("dialog.keys")) return;
    const rows = [...this.#bindings.values()].map(({ keys, title }) =>
      h("div", {}, h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, title)),
    );
    const dialog = h(
      "dialog",
      { class: "keys", "aria-labelledby": "keys-title", onclose: () => dialog.remove(), onclick: (event) => event.target === dialog && dialog.close() },
      h("form", { method: "dialog" }, h("h2", { id: "keys-title" }, "Keys"), h("dl", {}, rows), h("div", { class: "row" }, h("label", {}, this.#switch(), " Enable keyboard shortcuts"), h("button", { class: "button", autofocus: true }, "Close"))),
    );
    document.body.append(dialog);
    dialog.showModal();
  }

  #switch() {
    return h("input", { type: "checkbox", checked: !isOff(), onchange: ({ target }) => turn(target.checked) });
  }

  #pressed(event) {
    if (event.defaultPrevented || event.ctrlKey || event.altKey || event.metaKey || event.isComposing) return;
    if (typing(event.target)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (document.querySelector("dialog[open]") || isOff()) return;
    const keys = this.#prefix ? `${this.#prefix} ${event.key}` : event.key;
    this.#prefix = "";
    clearTimeout(this.#timer);
    const binding = this.#bindings.get(keys);
    if (binding?.act) {
      event.preventDefault();
      binding.act(event);
    } else if ([...this.#bindings.keys()].some((known) => known.startsWith(`${keys} `))) {
      this.#prefix = keys;
      this.#timer = setTimeout(() => (this.#prefix = ""), PATIENCE);
    }
  }
}

let off = null; // null: not read from local storage yet

function isOff() {
  try {
    off ??= localStorage.getItem("haulout.keys") === "off";
  } catch {
    off = false;
  }
  return off;
}

function turn(on) {
  off = !on;
  try {
    if (on) localStorage.removeItem("haulout.keys");
    else localStorage.setItem("haulout.keys", "off");
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
}

function typing(target) {
  return target.isContentEditable || target.matches?.("textarea, select, input:not([type=checkbox], [type=radio], [type=button])");
}
