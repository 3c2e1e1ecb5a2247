// The card next to the tile under the pointer or with the focus. The pointer may move onto the card, and Escape closes it
// (WCAG 1.4.13).

import { h } from "./dom.js";
import { stateMark } from "./components.js";
import { holdMark, marksOf } from "./node_map.js";
import { full, relative, short } from "./time.js";

const REST = 80; // milliseconds before it comes, and in which it can be reached
const GAP = 8;

export class HoverCard {
  #card = h("div", { class: "hover", role: "tooltip", id: "hover", hidden: true });
  #timer = 0;
  #anchor = null;
  #tileOf;
  #ended = new AbortController();

  constructor(area, tileOf) {
    this.#tileOf = tileOf;
    const { signal } = this.#ended;
    document.body.append(this.#card);
    area.addEventListener("pointerover", (event) => event.pointerType !== "touch" && this.#soon(event.target.closest(".tile")), { signal });
    area.addEventListener("pointerleave", () => this.#soon(null), { signal });
    this.#card.addEventListener("pointerenter", () => clearTimeout(this.#timer), { signal });
    this.#card.addEventListener("pointerleave", () => this.#soon(null), { signal });
    area.addEventListener("focusin", (event) => event.target.matches(".tile:focus-visible") && this.#show(event.target), { signal });
    area.addEventListener("focusout", () => this.hide(), { signal });
    document.addEventListener("keydown", (event) => event.key === "Escape" && this.hide(), { signal });
    addEventListener("scroll", () => this.hide(), { passive: true, signal });
  }

  // Redraws the card if its tile has changed.
  refresh(names) {
    if (this.#anchor && names.has(this.#anchor.dataset.name)) this.#show(this.#anchor);
  }

  hide() {
    clearTimeout(this.#timer);
    this.#anchor = null;
    this.#card.hidden = true;
  }

  end() {
    this.#ended.abort();
    this.hide();
    this.#card.remove();
  }

  #soon(anchor) {
    clearTimeout(this.#timer);
    if (anchor && anchor === this.#anchor) return;
    this.#timer = setTimeout(() => (anchor ? this.#show(anchor) : this.hide()), REST);
  }

  #show(anchor) {
    const tile = this.#tileOf(anchor);
    if (!tile || !anchor.isConnected) return this.hide();
    this.#anchor = anchor;
    this.#card.replaceChildren(...content(tile));
    this.#card.hidden = false;
    place(this.#card, anchor.getBoundingClientRect());
    return undefined;
  }
}

function content(tile) {
  const marks = marksOf(tile).filter((mark) => mark !== holdMark(tile.hold ?? ""));
  const facts = [
    ["Since", tile.since && `${short(tile.since)} (${relative(tile.since)})`],
    ["Next", tile.nextAt && `${short(tile.nextAt)} (${relative(tile.nextAt)})`],
    ["Zone, pool", [tile.zone, tile.pool].filter(Boolean).join(" · ")],
    ["Hold", tile.hold],
    ["NodeMaintenance", tile.maintenance],
    ["Profiles", Object.entries(tile.profiles ?? {}).map(([name, state]) => `${name}: ${state}`).join(", ")],
    ["Notices", tile.notices ? String(tile.notices) : ""],
    ["Labels", Object.entries(tile.labels ?? {}).map(([key, value]) => `${key}=${value}`).join(", ")],
  ].filter(([, value]) => value);
  return [
    h("div", { class: "hover-head" }, h("strong", {}, h("bdi", {}, tile.name)), stateMark(tile.state), tile.progress != null ? h("span", {}, `${tile.progress} %`) : null, marks.map((mark) => h("span", { class: "tag" }, mark))),
    tile.message ? h("p", {}, h("bdi", {}, tile.message)) : null,
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", { title: name === "Since" || name === "Next" ? full(name === "Since" ? tile.since : tile.nextAt) : null }, h("bdi", {}, value))])),
  ].filter(Boolean);
}

function place(card, anchor) {
  const { width, height } = card.getBoundingClientRect();
  const below = anchor.bottom + GAP + height <= innerHeight;
  const top = below ? anchor.bottom + GAP : Math.max(GAP, anchor.top - GAP - height);
  const left = Math.min(Math.max(GAP, anchor.left + anchor.width / 2 - width / 2), Math.max(GAP, document.documentElement.clientWidth - width - GAP));
  card.style.setProperty("top", `${Math.round(top)}px`);
  card.style.setProperty("left", `${Math.round(left)}px`);
}
