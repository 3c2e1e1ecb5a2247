// The timeline chart: a row for each node, bars for past, current and future maintenance, and a line for now.
//
//   const chart = new Chart({ zone, view(next, isOver) {…} });
//   chart.show(timeline); chart.look(view); chart.element
//
// Only visible rows are in the page, and a frame draws at most once, so that hundreds of rows stay fluid. There is no
// sideways scrolling: wheel, drag, pinch and keys call `view` with the wanted view (and true at the end of a gesture), and
// `look` sets the view.

import { axis } from "./axis.js";
import { h, icon, replace } from "./dom.js";
import { Floating } from "./popover.js";
import { Gestures } from "./gestures.js";
import { lanes } from "./lanes.js";
import { stateWord } from "./components.js";
import { toNode } from "./route.js";
import { KINDS, inWords, isOver, look, spanCard, timed, titleOf } from "./spans.js";
import { nowMs } from "./time.js";
import { range } from "./view.js";

const LANE = 20;
const PADDING = 5;
const MOST_BANDS = 4; // lanes of windows under the axis
const SPARE = 6; // rows that are drawn outside of the visible area
const THINNEST = 5; // pixels of a bar
const EVER = 8.64e15;
const HOW = "Left and right move in time, plus and minus zoom, up and down move between rows, Shift with left and right moves between bars, Enter opens the node. The table shows the same as text.";

export class Chart {
  element = h("div", { class: "tl", tabindex: "0", role: "group", "aria-label": "Timeline", "aria-describedby": "tl-how" });
  zone;

  #axis = h("div", { class: "tl-axis", "aria-hidden": "true" });
  #bands = h("div", { class: "tl-bands" });
  #corner = h("div", { class: "tl-corner" });
  #grid = h("div", { class: "tl-grid", "aria-hidden": "true" });
  #rowsElement = h("div", { class: "tl-rows" });
  #body = h("div", { class: "tl-body" });
  #now = h("div", { class: "tl-now", "aria-hidden": "true" });
  #nowLabel = h("span", { class: "tl-now-label" }, "now");
  #card = new Floating("tl-float");
  #rows = []; // {node, state, placed, bands, top, height}
  #drawn = new Map(); // by node: {row, element, name, bars, backdrop, before, after}
  #windows = [];
  #view = { length: 1, at: 0 };
  #frame = 0;
  #width = 0;
  #names = 0;
  #resized = new ResizeObserver(() => this.draw());
  #gestures;
  #look; // called with a new view
  #hovered = null; // the span of the card
  #hoveredBefore = null; // the span before the press

  constructor({ zone, view, tools = null }) {
    this.zone = zone;
    this.#look = view;
    const head = h("div", { class: "tl-head" }, this.#corner, this.#axis, this.#bands);
    replace(this.#corner, tools);
    this.#body.append(this.#grid, this.#rowsElement, this.#now);
    this.element.append(head, this.#body, h("p", { class: "unseen", id: "tl-how" }, HOW));
    this.#axis.append(this.#nowLabel);
    this.#gestures = new Gestures(this.element, {
      area: () => ({ left: this.element.getBoundingClientRect().left + this.#names, width: this.#width }),
      view: () => this.#view,
      change: (next, isDone) => view(next, isDone),
      hide: () => this.#hide(),
    });
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#key(event));
    this.element.addEventListener("focusin", (event) => this.#pointed(event));
    this.element.addEventListener("focusout", () => this.#hide());
    this.element.addEventListener("pointerover", (event) => event.pointerType !== "touch" && this.#pointed(event));
    this.element.addEventListener("pointerleave", () => this.#hide());
    this.element.addEventListener("pointerdown", () => (this.#hoveredBefore = this.#hovered), true);
    this.element.addEventListener("click", (event) => this.#clicked(event), true);
    this.#resized.observe(this.element);
  }

  end() {
    this.#resized.disconnect();
    this.#card.end();
    cancelAnimationFrame(this.#frame);
    this.#frame = -1;
  }

  show({ rows = [], windows = [] }) {
    this.#windows = bandLanes(windows.map(timed));
    let top = PADDING;
    this.#rows = rows.map((row) => {
      const spans = (row.spans ?? []).map(timed);
      const { placed, count } = lanes(spans, { horizon: EVER });
      const height = count * LANE + PADDING * 2 - 1;
      const made = { ...row, placed, height, top, bands: spans.filter((it) => it.kind === "window" || it.kind === "blackout") };
      top += height;
      return made;
    });
    this.#body.style.height = `${top + PADDING}px`;
    this.draw();
  }

  look(view) {
    this.#view = view;
    this.draw();
  }

  draw() {
    if (this.#frame) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  get #range() {
    return range(this.#view, nowMs());
  }

  #draw() {
    this.#names = this.#corner.offsetWidth;
    this.#width = Math.max(1, this.element.clientWidth - this.#names);
    const { start, end } = this.#range;
    const x = (at) => ((at - start) / (end - start)) * this.#width;
    this.#drawAxis(start, end, x);
    this.#drawBands(x);
    this.#drawNow(x);
    this.#drawRows(x);
  }

  #drawAxis(start, end, x) {
    const { small, large } = axis(start, end, this.#width, { calendar: this.zone.calendar });
    const mark = (className) => ({ at, text }) => h("span", { class: className, style: { transform: `translateX(${Math.max(0, x(at))}px)` } }, text);
    const withoutOverlaps = (list) => list.filter((it, index) => !list[index + 1] || x(list[index + 1].at) - Math.max(0, x(it.at)) > 80);
    replace(this.#axis, withoutOverlaps(large).map(mark("tl-large")), small.filter((it) => x(it.at) >= 0).map(mark("tl-small")), this.#nowLabel);
    const line = (className) => ({ at }) => h("i", { class: className, style: { transform: `translateX(${x(at)}px)` } });
    const isOnChart = (it) => x(it.at) >= 0;
    replace(
      this.#grid,
      this.#windows.flatMap((lane) => lane.spans).map((span) => band(span, x, this.#width)),
      small.filter(isOnChart).map(line("tl-line")),
      large.filter(isOnChart).map(line("tl-line is-large")),
    );
  }

  #drawBands(x) {
    replace(
      this.#bands,
      this.#windows.slice(0, MOST_BANDS).map((lane) =>
        h(
          "div",
          { class: "tl-band-lane" },
          h("span", { class: "tl-band-name", title: lane.title }, icon(KINDS.window.sign), h("bdi", {}, lane.title)),
          h("div", { class: "tl-track" }, lane.spans.map((span) => this.#withSpan(band(span, x, this.#width), null, span))),
        ),
      ),
    );
  }

  #drawNow(x) {
    const at = x(nowMs());
    const isVisible = at >= 0 && at <= this.#width;
    this.#now.hidden = this.#nowLabel.hidden = !isVisible;
    this.#now.style.transform = `translateX(${at}px)`;
    this.#nowLabel.style.transform = `translateX(${at}px) translateX(-50%)`;
  }

  #drawRows(x) {
    const top = this.element.scrollTop;
    const [from, to] = [top - SPARE * 32, top + this.element.clientHeight + SPARE * 32];
    const held = document.activeElement?.closest?.(".tl-row")?.dataset.node;
    const wanted = this.#rows.filter((row) => (row.top + row.height > from && row.top < to) || row.node === held);
    const names = new Set(wanted.map((row) => row.node));
    for (const [node, drawn] of this.#drawn) {
      if (names.has(node)) continue;
      drawn.element.remove();
      this.#drawn.delete(node);
    }
    for (const row of wanted) this.#drawRow(this.#row(row), x);
  }

  #drawRow({ row, element, bars, before, after, backdrop }, x) {
    element.style.transform = `translateY(${row.top}px)`;
    const sides = bars.map((it) => place(it.element, it.span, x, this.#width));
    before.hidden = !sides.includes(-1) || sides.includes(0);
    after.hidden = !sides.includes(1) || sides.includes(0);
    replace(backdrop, row.bands.map((span) => band(span, x, this.#width)));
  }

  // Returns the element of a row: creates it, or replaces it if its content changed, and keeps the focus.
  #row(row) {
    const before = this.#drawn.get(row.node);
    if (before?.row === row) return before;
    const drawn = this.#made(row);
    this.#drawn.set(row.node, drawn);
    if (!before) {
      this.#rowsElement.append(drawn.element);
      return drawn;
    }
    const held = [before.name, ...before.bars.map((it) => it.element)].indexOf(document.activeElement);
    before.element.replaceWith(drawn.element);
    if (held >= 0) (held ? (drawn.bars[held - 1]?.element ?? drawn.name) : drawn.name).focus({ preventScroll: true });
    return drawn;
  }

  #made(row) {
    const bars = row.placed.map(({ span, lane }) => ({ span, element: this.#bar(row, span, lane) }));
    const name = h("a", { class: ["tl-name", `is-${row.state}`], href: toNode(row.node), tabindex: "-1", title: row.node }, icon(row.state, stateWord(row.state)), h("bdi", {}, row.node));
    const [before, after] = [this.#beyond(row, "before"), this.#beyond(row, "after")];
    const backdrop = h("div", { class: "tl-backdrop" });
    const track = h("div", { class: "tl-track" }, backdrop, bars.map((it) => it.element), before, after);
    const element = h("div", { class: "tl-row", data: { node: row.node }, style: { height: `${row.height}px` } }, name, track);
    return { row, element, name, bars, backdrop, before, after };
  }

  #bar(row, span, lane) {
    const element = h(
      "a",
      {
        class: ["tl-bar", `kind-${KINDS[span.kind] ? span.kind : "other"}`, `look-${look(span)}`, span.to === null && "is-open"],
        href: toNode(row.node),
        tabindex: "-1",
        draggable: "false",
        "aria-label": inWords(span, this.zone),
        style: { top: `${PADDING + lane * LANE}px` },
      },
      icon(look(span) === "bad" ? "warning" : (KINDS[span.kind]?.sign ?? "unknown")),
      h("bdi", {}, barText(span)),
    );
    return this.#withSpan(element, row.node, span);
  }

  // For a row without visible bars: buttons to the nearest ones.
  #beyond(row, side) {
    const title = side === "before" ? "Earlier" : "Later";
    return h("button", { type: "button", class: `tl-beyond is-${side}`, tabindex: "-1", title, "aria-label": `${row.node}: ${title.toLowerCase()}`, hidden: true, onclick: () => this.#seek(nearest(row, this.#range, side)) }, icon("open"));
  }

  #seek(span) {
    const now = nowMs();
    if (span) this.#look({ ...this.#view, at: (span.from + (span.to ?? Math.max(now, span.from))) / 2 }, true);
  }

  #withSpan(element, node, span) {
    pointedAt.set(element, { node, span });
    return element;
  }

  // The card next to the bar under the pointer

  #pointed(event) {
    const element = event.target.closest(".tl-bar, .tl-band-lane .tl-band");
    const found = element && pointedAt.get(element);
    if (!found) return this.#hide();
    const box = element.getBoundingClientRect();
    const left = event.type === "pointerover" ? event.clientX : Math.max(box.left, this.#names);
    this.#card.show(spanCard(found.node, found.span, this.zone), box, left + 12);
    this.#hovered = element;
  }

  #hide() {
    this.#card.hide();
    this.#hovered = null;
  }

  // Touch cannot hover: the first tap shows the card, the second opens the node.
  #clicked(event) {
    const bar = event.target.closest(".tl-bar");
    if (!bar || event.pointerType !== "touch") return;
    if (bar === this.#hoveredBefore) return;
    event.preventDefault();
    bar.focus({ preventScroll: true });
  }

  // Keys

  #key(event) {
    if (event.altKey || event.metaKey || event.ctrlKey) return;
    if (event.key === "ArrowUp" || event.key === "ArrowDown") this.#step(event.key === "ArrowDown" ? 1 : -1);
    else if (event.shiftKey && event.key === "ArrowLeft") this.#along(-1);
    else if (event.shiftKey && event.key === "ArrowRight") this.#along(1);
    else if (event.key === "Escape" && this.#card.isShown) this.#hide();
    else if (!this.#gestures.key(event)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  #step(by) {
    const node = document.activeElement.closest?.(".tl-row")?.dataset.node;
    const index = this.#rows.findIndex((row) => row.node === node);
    const next = this.#rows[index < 0 ? 0 : Math.max(0, Math.min(this.#rows.length - 1, index + by))];
    if (!next) return;
    const head = this.element.firstElementChild.offsetHeight;
    const [top, bottom] = [next.top, next.top + next.height + head];
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    if (bottom > this.element.scrollTop + this.element.clientHeight) this.element.scrollTop = bottom - this.element.clientHeight;
    this.#draw();
    this.#drawn.get(next.node)?.name.focus({ preventScroll: true });
  }

  #along(by) {
    const drawn = this.#drawn.get(document.activeElement.closest?.(".tl-row")?.dataset.node);
    if (!drawn) return this.#step(1);
    const bars = [...drawn.bars].sort((a, b) => a.span.from - b.span.from);
    const index = bars.findIndex(({ element }) => element === document.activeElement);
    const next = index < 0 ? (bars.find(({ element }) => !element.hidden) ?? bars[0]) : bars[index + by];
    if (!next || (index < 0 && by < 0)) return void drawn.name.focus({ preventScroll: true });
    if (next.element.hidden) {
      this.#seek(next.span);
      next.element.hidden = false; // hidden elements cannot be focused
    }
    next.element.focus({ preventScroll: true });
  }
}

const pointedAt = new WeakMap();

function barText(span) {
  return [titleOf(span), span.state].filter(Boolean).join(" · ");
}

// The span nearest to the view, on one side of it.
function nearest({ placed }, { start, end }, side) {
  const spans = placed.map(({ span }) => span);
  if (side === "before") return spans.filter((it) => it.from < start).sort((a, b) => b.from - a.from)[0];
  return spans.filter((it) => it.from >= end).sort((a, b) => a.from - b.from)[0];
}

// Limits a bar to its visible part, so that its text is visible too. Returns on which side of the view the bar is if it
// is not visible.
function place(element, span, x, width) {
  const [left, right] = [x(span.from), span.to === null ? Math.max(x(nowMs()), x(span.from)) + 28 : x(span.to)];
  element.hidden = right < 0 || left > width;
  if (element.hidden) return right < 0 ? -1 : 1;
  const visibleLeft = Math.max(left, -8);
  const wide = Math.max(THINNEST, Math.min(right, width + 8) - visibleLeft);
  element.style.transform = `translateX(${visibleLeft}px)`;
  element.style.width = `${wide}px`;
  element.classList.toggle("is-thin", wide < 26);
  element.classList.toggle("is-over", isOver(span));
  element.classList.toggle("is-cut-left", left < -8);
  return 0;
}

function band(span, x, width) {
  const left = Math.max(0, x(span.from));
  const right = Math.min(width, span.to === null ? width : x(span.to));
  const element = h("i", { class: ["tl-band", `is-${span.kind}`], style: { transform: `translateX(${left}px)`, width: `${Math.max(0, right - left)}px` } });
  element.hidden = right <= left;
  return element;
}

function bandLanes(windows) {
  const found = new Map();
  for (const span of windows) {
    if (!found.has(span.title)) found.set(span.title, { title: span.title, spans: [] });
    found.get(span.title).spans.push(span);
  }
  return [...found.values()];
}
