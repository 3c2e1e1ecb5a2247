// The map: a tile for each node, in groups. One element per node, with a name inside only if it fits, so that
// thousands are cheap; groups out of view are not laid out (style sheet). An update touches only the tiles that changed.
//
// Tab enters and leaves the map; arrow keys move between tiles.

import { h, setText } from "./dom.js";
import { byGroup, byName, groupOf } from "./filters.js";
import { stateMark, stateWord } from "./components.js";
import { toNode } from "./route.js";
import { duration, ms, nowMs, relative, t } from "./time.js";

// From large to small: the size of a tile in the style sheet, and the maximum number of screens to scroll.
const SIZES = [
  { name: "large", width: 132, height: 50, screens: 2 }, // as wide as names need: see `#fit`
  { name: "medium", width: 34, height: 34, screens: 1.3 },
  { name: "small", width: 25, height: 25, screens: 1.3 },
  { name: "tiny", width: 16, height: 16, screens: Infinity },
];
const AROUND = 220; // pixels that are not the map
const NARROWEST = 126; // pixels of a tile with a name
const WIDEST = 280;
const HEADING = 64; // pixels of a group beside its tiles

export class TileMap {
  #linkOf;
  element = h("div", { class: "map", onkeydown: (event) => this.#key(event), onfocusin: (event) => this.#focused(event) });
  #by = "zone";
  #size = "large";
  #ending = "";
  #wide = NARROWEST;
  #counts = []; // of nodes in groups, when all was shown last
  #groups = new Map(); // by title: {element, tiles, count}
  #tiles = new Map(); // by name of node: {element, group, tile}
  #entry = null; // the tile that Tab focuses

  // `linkOf(by, title)` is the link of a group heading, or null.
  constructor(linkOf) {
    this.#linkOf = linkOf;
  }

  // Shows these nodes; rebuilds everything.
  show(tiles, by) {
    this.#by = by;
    this.#groups.clear();
    this.#tiles.clear();
    const sorted = [...tiles].sort((one, other) => byName(one.name, other.name));
    const members = new Map();
    for (const tile of sorted) {
      const title = groupOf(tile, by);
      if (!members.has(title)) members.set(title, []);
      members.get(title).push(tile);
    }
    const titles = [...members.keys()].sort(byGroup(by));
    this.#fit(sorted);
    this.#counts = titles.map((title) => members.get(title).length);
    this.#size = this.#sizeFor(this.#counts);
    this.element.replaceChildren(...titles.map((title) => this.#group(title, members.get(title))));
    this.#setEntry(this.element.querySelector(".tile"));
  }

  // Updates one node; `tile` null: it is deleted or no longer matches.
  change(name, tile) {
    const known = this.#tiles.get(name);
    const title = tile && groupOf(tile, this.#by);
    if (known && tile && known.group === title) {
      if (known.tile !== tile) this.#paint(known, tile);
      return;
    }
    const hadFocus = known?.element === document.activeElement;
    if (known) this.#remove(name, known);
    if (tile) this.#insert(name, tile, title, hadFocus);
  }

  // Whether a rebuild would look different: the window size or the number of nodes changed much.
  isAged(count) {
    const before = this.#counts.reduce((sum, each) => sum + each, 0);
    return this.#sizeFor(this.#counts) !== this.#size || Math.abs(count - before) > Math.max(10, before / 5);
  }

  tileOf(element) {
    return this.#tiles.get(element?.closest?.(".tile")?.dataset.name)?.tile ?? null;
  }

  elementOf(name) {
    return this.#tiles.get(name)?.element ?? null;
  }

  // The common suffix of all names is left out of tiles: in many clouds it is a long domain.
  #fit(tiles) {
    this.#ending = commonEnding(tiles.map(({ name }) => name));
    const longest = tiles.reduce((most, { name }) => Math.max(most, name.length), 0) - this.#ending.length;
    this.#wide = Math.min(WIDEST, Math.max(NARROWEST, Math.round(44 + 7.6 * longest)));
    this.element.style.setProperty("--wide", `${this.#wide}px`);
  }

  #sizeFor(counts) {
    const room = this.element.clientWidth || innerWidth;
    const screen = Math.max(400, innerHeight - AROUND);
    const columns = ({ name, width }) => Math.max(1, Math.floor((room - 26) / (name === "large" ? this.#wide + 6 : width)));
    const takes = (size) => counts.reduce((sum, count) => sum + HEADING + size.height * Math.ceil(count / columns(size)), 0);
    return SIZES.find((size) => takes(size) <= screen * size.screens || size.screens === Infinity).name;
  }

  #group(title, tiles) {
    const list = h("div", { class: "tiles", role: "group" });
    const count = h("span", { class: "count" });
    const name = this.#by === "state" ? stateMark(title) : h("bdi", {}, title);
    const href = this.#linkOf(this.#by, title);
    const heading = h("h2", {}, href ? h("a", { href, title: "Show only these" }, name) : name, count);
    const element = h("section", { class: "group", data: { size: this.#size } }, heading, list);
    const group = { element, list, count, title, size: 0 };
    this.#groups.set(title, group);
    list.append(...tiles.map((tile) => this.#make(tile, title)));
    this.#counted(group, tiles.length);
    return element;
  }

  #make(tile, title) {
    const element = document.createElement("a");
    element.tabIndex = -1;
    element.dataset.name = tile.name;
    element.href = toNode(tile.name);
    const known = { element, group: title, tile: null };
    this.#tiles.set(tile.name, known);
    this.#paint(known, tile);
    return element;
  }

  #paint(known, tile) {
    const { element } = known;
    known.tile = tile;
    const classes = `tile is-${tile.state}${tile.isCordoned ? " cordoned" : ""}${tile.isReady === false ? " unready" : ""}${tile.hold ? " held" : ""}${tile.progress != null ? " progresses" : ""}`;
    if (element.className !== classes) element.className = classes;
    element.setAttribute("aria-label", spoken(tile));
    if (tile.progress != null) element.style.setProperty("--progress", `${tile.progress}%`);
    if (this.#size === "large") element.replaceChildren(h("span", { class: "tile-name" }, h("bdi", {}, this.#short(tile.name))), h("span", { class: "tile-note" }, note(tile)));
  }

  #short(name) {
    return this.#ending && name.endsWith(this.#ending) ? name.slice(0, -this.#ending.length) : name;
  }

  #insert(name, tile, title, takesFocus) {
    let group = this.#groups.get(title);
    if (!group) {
      const section = this.#group(title, []);
      group = this.#groups.get(title);
      const compare = byGroup(this.#by);
      const after = [...this.#groups.values()].filter((each) => each !== group && compare(each.title, title) > 0).sort((one, other) => compare(one.title, other.title))[0];
      this.element.insertBefore(section, after?.element ?? null);
    }
    const element = this.#make(tile, title);
    group.list.insertBefore(element, follower(group.list.children, name));
    this.#counted(group, group.size + 1);
    if (!this.#entry) this.#setEntry(element);
    if (takesFocus) element.focus();
  }

  #remove(name, { element, group: title }) {
    const group = this.#groups.get(title);
    if (this.#entry === element) this.#setEntry(element.nextElementSibling ?? element.previousElementSibling);
    element.remove();
    this.#tiles.delete(name);
    this.#counted(group, group.size - 1);
    if (group.size > 0) return;
    group.element.remove();
    this.#groups.delete(title);
    if (!this.#entry) this.#setEntry(this.element.querySelector(".tile"));
  }

  #counted(group, size) {
    group.size = size;
    setText(group.count, size.toLocaleString("en"));
    const title = this.#by === "state" ? stateWord(group.title) : group.title;
    group.list.setAttribute("aria-label", `${title}: ${size} ${size === 1 ? "node" : "nodes"}`);
    group.element.style.setProperty("--count", String(size));
  }

  #setEntry(element) {
    if (this.#entry) this.#entry.tabIndex = -1;
    this.#entry = element ?? null;
    if (element) element.tabIndex = 0;
  }

  #focused(event) {
    if (event.target.classList.contains("tile")) this.#setEntry(event.target);
  }

  #key(event) {
    const from = event.target.closest(".tile");
    if (!from || event.ctrlKey || event.altKey || event.metaKey) return;
    const to = this.#neighbour(from, event.key);
    if (to === undefined) return;
    event.preventDefault();
    to?.focus();
  }

  // undefined: not a key of the map; null: no tile in that direction.
  #neighbour(from, key) {
    const all = () => [...this.element.querySelectorAll(".tile")];
    if (key === "Home") return all()[0];
    if (key === "End") return all().at(-1);
    if (key === "ArrowRight") return beside(all(), from, 1);
    if (key === "ArrowLeft") return beside(all(), from, -1);
    if (key === "ArrowDown") return nearest(all(), from, 1);
    if (key === "ArrowUp") return nearest(all(), from, -1);
    return undefined;
  }
}

export function marksOf(tile) {
  return [tile.isReady === false ? "not ready" : "", tile.isCordoned ? "cordoned" : "", tile.hold ? holdMark(tile.hold) : ""].filter(Boolean);
}

// "held", or "frozen" by a MaintenanceFreeze, whose text begins with that word.
export function holdMark(hold) {
  return hold.startsWith("frozen") ? "frozen" : "held";
}

// The longest common suffix that starts at a dot; a single name has none.
function commonEnding(names) {
  if (names.length < 2) return "";
  for (let dot = names[0].indexOf("."); dot > 0; dot = names[0].indexOf(".", dot + 1)) {
    const ending = names[0].slice(dot);
    if (names.every((name) => name.length > ending.length && name.endsWith(ending))) return ending;
  }
  return "";
}

function spoken(tile) {
  const progress = tile.progress != null ? `${tile.progress} percent` : "";
  return [tile.name, stateWord(tile.state).toLowerCase(), progress, ...marksOf(tile), tile.message].filter(Boolean).join(", ");
}

// The short text of a large tile.
function note(tile) {
  if (tile.state === "idle") return marksOf(tile)[0] ?? "";
  if (tile.state === "draining" && tile.progress != null) return `${tile.progress} %`;
  if (tile.state === "planned" && tile.nextAt) return t(tile.nextAt, { words: (time) => (ms(time) > nowMs() ? relative(time) : "due") });
  return tile.since ? t(tile.since, { words: (time) => duration((nowMs() - ms(time)) / 1000) }) : "";
}

function follower(elements, name) {
  let low = 0;
  let high = elements.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (byName(elements[middle].dataset.name, name) < 0) low = middle + 1;
    else high = middle;
  }
  return elements[low] ?? null;
}

function beside(all, from, step) {
  return all[all.indexOf(from) + step] ?? null;
}

// The nearest tile of the next row; the number of tiles in a row depends on the window.
function nearest(all, from, step) {
  const here = from.getBoundingClientRect();
  let line = null;
  let best = null;
  let distance = Infinity;
  for (let at = all.indexOf(from) + step; all[at]; at += step) {
    const there = all[at].getBoundingClientRect();
    if (Math.abs(there.top - here.top) < 2) continue;
    line ??= there.top;
    if (Math.abs(there.top - line) >= 2) break;
    const apart = Math.abs(there.left - here.left);
    if (apart < distance) [best, distance] = [all[at], apart];
  }
  return best;
}
