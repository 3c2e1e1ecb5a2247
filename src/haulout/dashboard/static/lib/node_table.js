// The list: a table of nodes that can be sorted. Up to `ALL` rows all are in the page, so that the browser's search
// finds them; beyond that only visible rows are, between two spacer rows.

import { h, icon, setText } from "./dom.js";
import { byName } from "./filters.js";
import { STATES, nodeLink, stateMark } from "./components.js";
import { marksOf } from "./node_map.js";
import { ms, relative, t, age } from "./time.js";

const ALL = 300; // rows rendered at once
const AHEAD = 12; // rows that are kept ready on either side
const MARKS = { "not ready": "unready", cordoned: "cordon", held: "hold", frozen: "hold" };

const far = (time) => (time ? ms(time) : Infinity);
const COLUMNS = [
  { key: "name", title: "Node", compare: (one, other) => byName(one.name, other.name), cell: nameCell },
  { key: "state", title: "State", compare: (one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state), cell: stateCell },
  { key: "message", title: "Message", compare: (one, other) => byName(one.message ?? "￿", other.message ?? "￿"), cell: messageCell },
  { key: "since", title: "In state for", compare: (one, other) => far(one.since) - far(other.since) || 0, cell: (tile) => t(tile.since, { words: age }) },
  { key: "nextAt", title: "Next", compare: (one, other) => far(one.nextAt) - far(other.nextAt) || 0, cell: (tile) => t(tile.nextAt, { words: relative }) },
  { key: "zone", title: "Zone", compare: (one, other) => byName(one.zone ?? "", other.zone ?? ""), cell: (tile) => h("bdi", {}, tile.zone ?? "") },
  { key: "pool", title: "Pool", compare: (one, other) => byName(one.pool ?? "", other.pool ?? ""), cell: (tile) => h("bdi", {}, tile.pool ?? "") },
];

export class NodeTable {
  element;
  #sorted = []; // tiles, in the order of the list
  #sort = { key: "state", isDown: false };
  #rows = new Map(); // by name: {element, tile}
  #body = h("tbody");
  #above = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: COLUMNS.length }));
  #below = h("tr", { class: "spacer", "aria-hidden": "true" }, h("td", { colspan: COLUMNS.length }));
  #heads = {};
  #table;
  #scrolled = () => this.#draw();

  constructor(onSort) {
    const head = COLUMNS.map(({ key, title }) => {
      const arrow = h("span", { class: "arrow" });
      const control = h("button", { type: "button", onclick: () => onSort(this.#next(key)) }, title, arrow);
      this.#heads[key] = { cell: h("th", { scope: "col", class: `col-${key}` }, control), arrow };
      return this.#heads[key].cell;
    });
    this.#table = h("table", { class: "nodes", "aria-label": "Nodes" }, h("thead", {}, h("tr", {}, head)), this.#body);
    this.element = h("div", { class: "card list" }, this.#table);
    addEventListener("scroll", this.#scrolled, { passive: true });
    addEventListener("resize", this.#scrolled);
  }

  end() {
    removeEventListener("scroll", this.#scrolled);
    removeEventListener("resize", this.#scrolled);
  }

  // `sort` is a column's key, with a minus before it for the other way round.
  show(tiles, sort) {
    this.#sort = sorting(sort);
    const { compare } = COLUMNS.find(({ key }) => key === this.#sort.key);
    const direction = this.#sort.isDown ? -1 : 1;
    this.#sorted = [...tiles].sort((one, other) => direction * compare(one, other) || byName(one.name, other.name));
    this.#table.setAttribute("aria-rowcount", String(tiles.length + 1));
    for (const [key, { cell, arrow }] of Object.entries(this.#heads)) {
      const isSorted = key === this.#sort.key;
      cell.setAttribute("aria-sort", isSorted ? (this.#sort.isDown ? "descending" : "ascending") : "none");
      arrow.replaceChildren(...(isSorted ? [icon(this.#sort.isDown ? "down" : "up")] : []));
    }
    this.#draw();
  }

  #next(key) {
    return this.#sort.key === key && !this.#sort.isDown ? `-${key}` : key;
  }

  #draw() {
    if (this.element.hidden) return;
    const { first, last, height } = this.#visibleRows();
    const wanted = this.#sorted.slice(first, last);
    const names = new Set(wanted.map(({ name }) => name));
    for (const [name, { element }] of this.#rows) {
      if (names.has(name)) continue;
      element.remove();
      this.#rows.delete(name);
    }
    space(this.#above, first * height);
    space(this.#below, (this.#sorted.length - last) * height);
    let place = this.#body.firstChild;
    const put = (element) => {
      if (place === element) place = element.nextSibling;
      else this.#body.insertBefore(element, place);
    };
    put(this.#above);
    wanted.forEach((tile, index) => put(this.#row(tile, first + index)));
    put(this.#below);
  }

  #row(tile, index) {
    const known = this.#rows.get(tile.name);
    const element = known?.element ?? h("tr", {}, COLUMNS.map(({ key }) => h("td", { class: `col-${key}` })));
    if (known?.tile !== tile) {
      COLUMNS.forEach(({ key, cell }, at) => refill(element.children[at], key, cell(tile), known?.tile, tile));
      element.className = `is-${tile.state}`;
      this.#rows.set(tile.name, { element, tile });
    }
    element.setAttribute("aria-rowindex", String(index + 2));
    return element;
  }

  #visibleRows() {
    const count = this.#sorted.length;
    if (count <= ALL) return { first: 0, last: count, height: 0 };
    const height = parseFloat(getComputedStyle(this.element).getPropertyValue("--row")) || 36;
    const top = Math.max(0, -this.#body.getBoundingClientRect().top);
    const first = Math.min(count, Math.max(0, Math.floor(top / height) - AHEAD));
    return { first, last: Math.min(count, first + Math.ceil(innerHeight / height) + 2 * AHEAD), height };
  }
}

function sorting(text) {
  const key = text.replace(/^-/, "");
  return COLUMNS.some((column) => column.key === key) ? { key, isDown: text.startsWith("-") } : { key: "state", isDown: false };
}

function space(row, height) {
  row.hidden = height === 0;
  row.firstChild.style.setProperty("height", `${height}px`);
}

// The link element is kept as long as the row, so it keeps the focus.
function refill(cell, key, content, before, tile) {
  if (key === "name" && before) {
    cell.querySelector(".marks").replaceWith(marks(tile));
    return;
  }
  if (content instanceof Node) cell.replaceChildren(content);
  else setText(cell, content ?? "");
}

function nameCell(tile) {
  return h("span", { class: "name" }, nodeLink(tile.name), marks(tile));
}

function marks(tile) {
  return h("span", { class: "marks" }, marksOf(tile).map((mark) => h("span", { class: ["mark", `mark-${MARKS[mark]}`], title: mark }, icon(MARKS[mark], mark))));
}

// Without room for more columns, a node without a reason shows its zone and pool.
function messageCell({ message, zone, pool }) {
  if (!message) return h("span", { class: "where" }, h("bdi", {}, [zone, pool].filter(Boolean).join(" · ")));
  return h("bdi", { title: message }, message);
}

function stateCell(tile) {
  const share = tile.progress != null ? h("span", { class: "share" }, `${tile.progress} %`) : null;
  return h("span", { class: "state-cell" }, stateMark(tile.state), share);
}
