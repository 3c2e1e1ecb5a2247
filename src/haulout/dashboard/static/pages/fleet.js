// All nodes: a map or a list, filtered and grouped by the URL parameters, so that a link shows the same to others; next
// to it what needs attention, the usage of budgets, and what comes next.
//
// Changes are collected until the next frame, and update only the tiles concerned.

import { h, icon, replace, setText } from "../lib/dom.js";
import { GROUPS, filtersOf, isNarrowed, matches, matchesButState } from "../lib/filters.js";
import { HoverCard } from "../lib/hover.js";
import { STATES, button, card, choose, empty, failure, loading, meter, nodeLink, pageHead, segments, stateMark, stateWord } from "../lib/components.js";
import { format } from "../lib/route.js";
import { NodeTable } from "../lib/node_table.js";
import { TileMap } from "../lib/node_map.js";
import { age, ms, nowMs, t } from "../lib/time.js";

const FEW = 5; // entries listed next to the map
const PAUSE = 150; // milliseconds after the last keystroke or resize
const NARROW = matchMedia("(max-width: 760px)");

export function mount(root, context) {
  return new FleetPage(root, context);
}

class FleetPage {
  #context;
  #store;
  #filters;
  #map = new TileMap((by, title) => this.#only(by, title));
  #table = new NodeTable((sort) => this.#set({ sort: sort === "state" ? "" : sort }));
  #hover;
  #changed = new Set();
  #frame = 0;
  #typing = 0;
  #sizing = 0;
  #ends = [];
  #count = h("span", { class: "total" });
  #search = h("input", { type: "search", class: "field", placeholder: "Search nodes", "aria-label": "Search: name, zone, pool, label, reason", autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" });
  #chips = h("div", { class: "chips", role: "group", "aria-label": "States" });
  #selects = {};
  #groups;
  #grouping;
  #views;
  #clear;
  #main = h("div", { class: "fleet-main" });
  #aside = h("aside", { class: "fleet-aside", "aria-label": "Overview" });
  #none = h("div", { class: "card", hidden: true });
  #chipOf = {};
  #serialized = ""; // beside the map

  constructor(root, context) {
    this.#context = context;
    this.#store = context.store;
    this.#build(root);
    this.#hover = new HoverCard(this.#map.element, (element) => this.#map.tileOf(element));
    this.#ends = [context.keys.on("← ↑ ↓ →", "Move between tiles"), context.keys.on("Enter", "Open the node"), context.keys.on("/", "Search", () => this.#search.select()), context.keys.on("m", "Map or list", () => this.#setView(this.#view === "map" ? "list" : "map"))];
    // Observe the window, not the map: a scrollbar that appears with larger tiles would make the size oscillate.
    const sized = () => {
      clearTimeout(this.#sizing);
      this.#sizing = setTimeout(() => this.#all(), PAUSE);
    };
    addEventListener("resize", sized);
    this.#ends.push(() => removeEventListener("resize", sized), () => this.#hover.end(), () => this.#table.end());
    this.update("route");
  }

  update(kind, data) {
    if (kind === "route") {
      this.#filters = filtersOf(this.#context.route.parameters);
      const text = this.#parameters.q ?? "";
      const isTyping = document.activeElement === this.#search && this.#typing;
      if (!isTyping && this.#search.value.trim() !== text) this.#search.value = text;
      this.#all();
    } else if (kind === "fleet" || (kind === "connection" && !this.#store.hasFleet)) this.#all();
    else if (kind === "nodes") this.#soon(data);
    else if (kind === "summary") {
      this.#offer();
      this.#beside();
    }
  }

  unmount() {
    cancelAnimationFrame(this.#frame);
    clearTimeout(this.#typing);
    clearTimeout(this.#sizing);
    for (const end of this.#ends) end();
  }

  get #parameters() {
    return this.#context.route.parameters;
  }

  get #view() {
    return this.#parameters.view ?? (NARROW.matches ? "list" : "map");
  }

  get #by() {
    return Object.hasOwn(GROUPS, this.#parameters.group ?? "") ? this.#parameters.group : "zone";
  }

  // The link to only the nodes of a group; null: they are shown already, or no filter selects them.
  #only(by, title) {
    const { parameters } = this.#context.route;
    if (by === "none" || title.startsWith("No ") || title.includes(", ") || (parameters[by] ?? "") === title) return null;
    return format({ page: "fleet", parameters: { ...parameters, [by]: title } });
  }

  #set(parameters, options) {
    this.#context.go({ parameters: { ...this.#parameters, ...parameters } }, options);
  }

  #setView(view) {
    this.#set({ view: view === (NARROW.matches ? "list" : "map") ? "" : view });
  }

  // What stays

  #build(root) {
    this.#search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => {
        this.#typing = 0;
        this.#set({ q: this.#search.value.trim() }, { replace: true });
      }, PAUSE);
    });
    this.#groups = segments("Group by", Object.entries(GROUPS).map(([value, text]) => ({ value, text })), this.#by, (value) => this.#set({ group: value === "zone" ? "" : value }));
    this.#grouping = h("div", { class: "grouping" }, h("span", { class: "label", "aria-hidden": "true" }, "Group by"), this.#groups);
    this.#views = segments("Show as", [{ value: "map", text: "Map", mark: "map" }, { value: "list", text: "List", mark: "list" }], this.#view, (value) => this.#setView(value));
    this.#clear = button("Show all", () => this.#clearAll(), { mark: "close", kind: "quiet" });
    for (const state of STATES) this.#chips.append(this.#chip(state));
    for (const [name, all] of [["zone", "All zones"], ["pool", "All pools"], ["profile", "All profiles"]]) {
      this.#selects[name] = h("select", { class: "field", "aria-label": all.replace("All ", "").replace(/s$/, ""), hidden: true, data: { all }, onchange: (event) => this.#set({ [name]: event.target.value }) });
    }
    const head = pageHead(["Fleet ", this.#count], this.#grouping, this.#views);
    head.firstChild.after(this.#clear); // not among the filters, which would jump
    replace(
      root,
      head,
      h(
        "div",
        { class: "filters" },
        h("div", { class: "search" }, icon("search"), this.#search, h("kbd", { "aria-hidden": "true" }, "/")),
        Object.values(this.#selects),
        this.#chips,
      ),
      h("div", { class: "fleet" }, this.#aside, this.#main),
    );
    replace(this.#main, this.#none, this.#map.element, this.#table.element, legend());
  }

  #chip(state) {
    const count = h("span", { class: "count" }, "0");
    const element = h("button", { type: "button", class: ["chip", `is-${state}`], "aria-pressed": "false", onclick: () => this.#toggle(state) }, stateMark(state), count);
    this.#chipOf[state] = { element, count };
    return element;
  }

  #toggle(state) {
    const states = new Set(this.#filters.states);
    if (!states.delete(state)) states.add(state);
    this.#set({ state: STATES.filter((each) => states.has(each)).join(",") });
  }

  #clearAll() {
    this.#search.value = "";
    this.#set({ q: "", state: "", zone: "", pool: "", profile: "" });
  }

  // What changes

  #soon({ changed = [], deleted = [] }) {
    for (const { name } of changed) this.#changed.add(name);
    for (const name of deleted) this.#changed.add(name);
    this.#frame ||= requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    this.#frame = 0;
    const names = this.#changed;
    this.#changed = new Set();
    const shown = this.#shown();
    if (this.#view === "map" && !this.#map.element.hidden && !this.#map.isAged(shown.length)) {
      for (const name of names) {
        const tile = this.#store.nodes.get(name);
        this.#map.change(name, tile && matches(tile, this.#filters) ? tile : null);
      }
      this.#hover.refresh(names);
    } else this.#draw(shown);
    this.#around(shown);
  }

  #all() {
    this.#changed.clear();
    const shown = this.#shown();
    choose(this.#groups, this.#by);
    choose(this.#views, this.#view);
    this.#offer();
    this.#hover?.hide();
    this.#draw(shown);
    this.#around(shown);
  }

  #shown() {
    return [...this.#store.nodes.values()].filter((tile) => matches(tile, this.#filters));
  }

  #draw(shown) {
    const isMap = this.#view === "map";
    this.#main.parentElement.dataset.view = this.#view;
    this.#grouping.hidden = !isMap;
    this.#map.element.hidden = !isMap;
    this.#table.element.hidden = isMap;
    if (isMap) this.#map.show(shown, this.#by);
    else this.#table.show(shown, this.#parameters.sort ?? "state");
  }

  #around(shown) {
    const { nodes, hasFleet } = this.#store;
    const narrowed = isNarrowed(this.#filters);
    setText(this.#count, hasFleet ? counted(shown.length, nodes.size) : "");
    this.#clear.hidden = !narrowed;
    this.#aside.classList.toggle("aside-narrowed", narrowed);
    this.#none.hidden = shown.length > 0;
    if (shown.length === 0) replace(this.#none, this.#nothing(hasFleet, narrowed));
    this.#map.element.hidden ||= shown.length === 0;
    this.#table.element.hidden ||= shown.length === 0;
    this.#countStates();
    this.#beside();
  }

  #nothing(hasFleet, narrowed) {
    const { state, problem } = this.#store.connection;
    if (!hasFleet && state === "reconnecting") return failure({ message: problem }, () => this.#store.retry());
    if (!hasFleet) return loading("nodes");
    if (narrowed) return empty("No matching nodes", "Nothing matches the search and the filters.", button("Show all nodes", () => this.#clearAll()));
    return empty("There are no nodes", "Nodes are shown here as soon as the cluster has some. Check with kubectl get nodes.");
  }

  #countStates() {
    const counts = Object.fromEntries(STATES.map((state) => [state, 0]));
    for (const tile of this.#store.nodes.values()) if (matchesButState(tile, this.#filters)) counts[tile.state] += 1;
    for (const state of STATES) {
      const { element, count } = this.#chipOf[state];
      setText(count, counts[state].toLocaleString("en"));
      element.classList.toggle("zero", counts[state] === 0);
      element.setAttribute("aria-pressed", String(this.#filters.states.has(state)));
    }
  }

  #offer() {
    const { summary } = this.#store;
    for (const [name, values] of [["zone", summary?.zones], ["pool", summary?.pools], ["profile", summary?.profiles]]) {
      const select = this.#selects[name];
      const chosen = this.#filters[name];
      const options = [...new Set([...(values ?? []), ...(chosen ? [chosen] : [])])];
      select.hidden = options.length < 2 && !chosen;
      if (select.dataset.options !== JSON.stringify(options)) {
        select.dataset.options = JSON.stringify(options);
        replace(select, h("option", { value: "" }, select.dataset.all), options.map((value) => h("option", { value }, value)));
      }
      select.value = chosen;
    }
  }

  // Beside the map

  // Redrawn only if its content changes: a link that is about to be clicked must not move.
  #beside() {
    const tiles = [...this.#store.nodes.values()];
    const blocked = tiles.filter(({ state }) => state === "blocked").sort((one, other) => ms(one.since ?? 0) - ms(other.since ?? 0));
    const now = nowMs();
    const soon = tiles.filter(({ nextAt, state }) => state === "planned" && nextAt && ms(nextAt) > now).sort((one, other) => ms(one.nextAt) - ms(other.nextAt));
    const budgets = this.#store.summary?.budgets ?? [];
    const serialized = JSON.stringify([blocked.slice(0, FEW), blocked.length, soon.slice(0, FEW), soon.length, budgets]);
    if (serialized === this.#serialized) return;
    this.#serialized = serialized;
    replace(this.#aside, attention(blocked), budgetsCard(budgets), coming(soon));
  }
}

function attention(blocked) {
  if (blocked.length === 0) return null;
  const more = blocked.length > FEW ? h("a", { class: "more", href: "#/fleet?state=blocked&view=list&sort=since" }, `All ${blocked.length.toLocaleString("en")} that are blocked`) : null;
  return card("Needs attention", { className: "attention", note: `${blocked.length.toLocaleString("en")} blocked` }, h("ul", {}, blocked.slice(0, FEW).map(item)), more);
}

function budgetsCard(budgets) {
  if (budgets.length === 0) return null;
  return card("Budgets", { className: "budgets" }, h("ul", {}, budgets.map(budget)));
}

function coming(soon) {
  if (soon.length === 0) return null;
  const line = (tile) => h("li", {}, h("div", { class: "item-head" }, icon("planned"), nodeLink(tile.name), h("span", { class: "note" }, t(tile.nextAt))), tile.message ? h("p", {}, h("bdi", {}, tile.message)) : null);
  const more = soon.length > FEW ? h("a", { class: "more", href: "#/fleet?state=planned&view=list&sort=nextAt" }, `All ${soon.length.toLocaleString("en")} that are planned`) : null;
  return card("Planned", { className: "coming" }, h("ul", {}, soon.slice(0, FEW).map(line)), more);
}

function item(tile) {
  const since = tile.since ? h("span", { class: "note" }, "for ", t(tile.since, { words: age })) : null;
  return h("li", {}, h("div", { class: "item-head" }, icon("blocked"), nodeLink(tile.name), since), h("p", {}, h("bdi", {}, tile.message || "No reason is known.")));
}

// Of the group topology.kubernetes.io/zone=a the card shows zone=a: a longer name would take a second line.
const KEY_PREFIX = /(?<=^|,)[^=,/]+\/(?=[^=,/]+=)/g;

function budget({ name, used, limit, text, waiting = [] }) {
  const line = waiting.length ? h("p", {}, `${waiting.length} waiting: `, waiting.slice(0, 3).map((node, index) => [index ? ", " : "", nodeLink(node)]), waiting.length > 3 ? ` and ${waiting.length - 3} more` : "") : null;
  return h("li", {}, h("div", { class: "item-head" }, h("strong", { title: name }, h("bdi", {}, name.replace(KEY_PREFIX, ""))), h("span", { class: "note" }, `${used} of ${limit}`)), meter(used, limit, `Budget ${name}: ${used} of ${limit} used`), text ? h("p", {}, h("bdi", {}, text)) : null, line);
}

function counted(shown, total) {
  const all = total.toLocaleString("en");
  return shown === total ? `${all} ${total === 1 ? "node" : "nodes"}` : `${shown.toLocaleString("en")} of ${all} nodes`;
}

function legend() {
  const sample = (classes, text) => h("li", {}, h("span", { class: ["tile", "sample", classes] }), text);
  return h("ul", { class: "legend", "aria-label": "Legend" }, STATES.map((state) => sample(`is-${state}`, stateWord(state))), sample("is-idle cordoned", "Cordoned"), sample("is-idle unready", "Not ready"), sample("is-idle held", "Held"));
}
