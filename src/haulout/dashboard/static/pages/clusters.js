// The clusters of a hub: reachable or not, in maintenance, or waiting for the budget. A cluster unfolds to its Machines
// with a request, what each waits for, and the commands to run.
//
// The URL has the filters (`q`, `namespace`, `state`) and the open clusters (`open`), so a link shows the same to others.
// A tile is redrawn only when its cluster changes.

import { MARKS, MARK_WORDS, filtersOf, grouped, isUnreachable, isWorthSplitting, marksOf, matches, matchesButMark, nameOf, namespaceOf } from "../lib/clusters.js";
import { h, icon, replace, setText } from "../lib/dom.js";
import { filterBar } from "../lib/filter_fields.js";
import { button, card, command, empty, failure, loading, meter, pageHead, verdict } from "../lib/components.js";
import { format } from "../lib/route.js";
import { fold } from "../lib/sections.js";
import { age, ms, t } from "../lib/time.js";

const FEW = 5; // entries listed next to the tiles
const LOOKS = { unreachable: "is-blocked", unreadable: "is-blocked", "in-maintenance": "is-in-maintenance", waiting: "is-planned", connecting: "is-draining", deleting: "is-recovering", idle: "is-idle" };

export function mount(root, context) {
  const { store, go } = context;
  const tiles = new Map(); // by key: {tile, isOpen, element}
  const groups = new Map(); // by title: {element, count, list}
  const chips = {};
  let beside = ""; // its data as JSON, to compare with
  let frame = 0;

  const set = (parameters, options) => go({ parameters: { ...context.route.parameters, ...parameters } }, options);
  const bar = filterBar("Filter clusters", [{ name: "q", label: "Search clusters" }, { name: "namespace", label: "Namespace", all: "All namespaces", options: [] }], (parameters) => set(parameters, { replace: true }), chipRow());
  const count = h("span", { class: "total" });
  const aside = h("aside", { class: "fleet-aside", "aria-label": "Overview" });
  const main = h("div", { class: "clusters-main" });
  replace(root, pageHead(["Clusters", count]), bar.element, h("div", { class: "fleet" }, aside, main));
  main.addEventListener("keydown", moved);
  const ends = [context.keys.on("/", "Search", () => bar.focus()), context.keys.on("← ↑ ↓ →", "Move between clusters"), context.keys.on("Enter", "Open or close the cluster")];
  show();

  function chipRow() {
    const chip = (mark) => {
      const number = h("span", { class: "count" }, "0");
      const element = h("button", { type: "button", class: ["chip", LOOKS[mark]], "aria-pressed": "false", onclick: () => turn(mark) }, marked(mark), number);
      chips[mark] = { element, number };
      return element;
    };
    return h("div", { class: "chips", role: "group", "aria-label": "States" }, MARKS.map(chip));
  }

  function turn(mark) {
    const { marks } = filtersOf(context.route.parameters);
    if (!marks.delete(mark)) marks.add(mark);
    set({ state: MARKS.filter((each) => marks.has(each)).join(",") });
  }

  // What changes

  function show() {
    frame = 0;
    const { parameters } = context.route;
    const filters = filtersOf(parameters);
    const all = [...(store.clusters?.values() ?? [])];
    bar.show(parameters, { namespace: [...new Set(all.map(namespaceOf))].sort() });
    showCounts(all, filters);
    showBeside(all);
    const fitting = all.filter((tile) => matches(tile, filters));
    setText(count, store.clusters ? counted(fitting.length, all.length) : "");
    if (fitting.length === 0) return nothing(all.length);
    showTiles(grouped(fitting, isWorthSplitting(all)), opened(parameters));
  }

  function showCounts(all, filters) {
    const fitting = all.filter((tile) => matchesButMark(tile, filters)).map(marksOf);
    for (const [mark, { element, number }] of Object.entries(chips)) {
      const found = fitting.filter((marks) => marks.includes(mark)).length;
      setText(number, String(found));
      element.classList.toggle("zero", found === 0);
      element.hidden = found === 0 && ["connecting", "leaving"].includes(mark) && !filters.marks.has(mark);
      element.setAttribute("aria-pressed", String(filters.marks.has(mark)));
    }
  }

  function nothing(total) {
    tiles.clear();
    groups.clear();
    replace(main, h("div", { class: "card" }, missing(total)));
  }

  function missing(total) {
    const { state, problem } = store.connection;
    if (!store.clusters && state === "reconnecting") return failure({ message: problem }, () => store.retry());
    if (!store.clusters) return loading("clusters");
    if (total) return empty("No matching clusters", "Nothing matches the search and the filters.", button("Show all clusters", () => set({ q: "", namespace: "", state: "" })));
    return [
      empty("There are no clusters", "A cluster is shown here as soon as one of its Machines is enabled:"),
      h("div", { class: "clusters-none" }, command("kubectl -n NAMESPACE label machines.cluster.x-k8s.io -l cluster.x-k8s.io/cluster-name=CLUSTER runtime-extension-maintenance-controller.cloud.sap/enabled=true", { title: "Enable the Machines of a cluster" })),
    ];
  }

  function showTiles(wanted, open) {
    if (groups.size === 0) replace(main);
    const titles = new Set(wanted.map(([title]) => title));
    for (const [title, { element }] of groups) if (!titles.has(title)) element.remove(), groups.delete(title);
    const present = new Set();
    wanted.forEach(([title, list], index) => {
      const group = groupOf(title);
      if (main.children[index] !== group.element) main.insertBefore(group.element, main.children[index] ?? null);
      setText(group.count, String(list.length));
      list.forEach((tile, at) => {
        present.add(tile.key);
        const element = made(tile, open.has(tile.key), !title);
        if (group.list.children[at] !== element) group.list.insertBefore(element, group.list.children[at] ?? null);
      });
    });
    for (const [key, { element }] of tiles) if (!present.has(key)) element.remove(), tiles.delete(key);
  }

  function groupOf(title) {
    if (!groups.has(title)) {
      const number = h("span", { class: "count" });
      const list = h("ul", { class: "clusters-list", "aria-label": title ? `Clusters of ${title}` : "Clusters" });
      const heading = title ? h("h2", {}, h("a", { href: format({ page: "clusters", parameters: { namespace: title } }) }, h("bdi", {}, title)), number) : null;
      groups.set(title, { element: h("section", { class: "clusters-group" }, heading, list), count: number, list });
    }
    return groups.get(title);
  }

  // Keeps the focus when a tile is redrawn.
  function made(tile, isOpen, isAlone) {
    const known = tiles.get(tile.key);
    if (known?.tile === tile && known.isOpen === isOpen && known.isAlone === isAlone) return known.element;
    const element = clusterTile(tile, { isOpen, isAlone, turn: () => toggle(tile.key) });
    tiles.set(tile.key, { tile, isOpen, isAlone, element });
    if (!known) return element;
    const focusable = (of) => [...of.querySelectorAll("a[href], button, summary, [tabindex]")];
    const held = focusable(known.element).indexOf(document.activeElement);
    known.element.replaceWith(element);
    if (held >= 0) focusable(element)[held]?.focus({ preventScroll: true });
    return element;
  }

  function toggle(key) {
    const open = opened(context.route.parameters);
    if (!open.delete(key)) open.add(key);
    set({ open: [...open].join(",") }, { replace: true });
  }

  // Arrow keys: to the cluster in that direction.
  function moved(event) {
    if (!event.target.matches(".cluster-toggle") || event.ctrlKey || event.altKey || event.metaKey) return;
    const all = [...main.querySelectorAll(".cluster-toggle")];
    const at = all.indexOf(event.target);
    const to = { ArrowRight: all[at + 1], ArrowLeft: all[at - 1], ArrowDown: vertical(all, event.target, 1), ArrowUp: vertical(all, event.target, -1), Home: all[0], End: all.at(-1) }[event.key];
    if (!to) return;
    event.preventDefault();
    to.focus();
  }

  // Beside the tiles

  function showBeside(all) {
    const lost = all.filter(isUnreachable).sort((one, other) => ms(one.since ?? 0) - ms(other.since ?? 0));
    const budgets = store.summary?.budgets ?? [];
    const serialized = JSON.stringify([lost.slice(0, FEW), lost.length, budgets]);
    if (serialized === beside) return;
    beside = serialized;
    replace(aside, attention(lost), budgets.length ? card("Clusters in maintenance at once", { className: "budgets" }, h("ul", {}, budgets.map(budget))) : null);
  }

  return {
    update(kind) {
      if (["clusters", "summary", "fleet"].includes(kind)) frame ||= requestAnimationFrame(show);
      else if (kind === "route" || (kind === "connection" && !store.clusters)) show();
    },
    unmount() {
      cancelAnimationFrame(frame);
      bar.end();
      for (const end of ends) end();
    },
  };
}

function opened({ open = "" }) {
  return new Set(open.split(",").filter(Boolean));
}

function marked(mark) {
  return h("span", { class: ["state", LOOKS[mark]] }, icon(mark), h("span", {}, MARK_WORDS[mark]));
}

function clusterLink(key) {
  return h("a", { class: "node-link", href: format({ page: "clusters", parameters: { q: key, open: key } }) }, h("bdi", {}, key));
}

function vertical(all, from, direction) {
  const box = from.getBoundingClientRect();
  const rows = all.map((element) => ({ element, box: element.getBoundingClientRect() })).filter((it) => direction * (it.box.top - box.top) > 4);
  const nearest = Math.min(...rows.map((it) => Math.abs(it.box.top - box.top)));
  const row = rows.filter((it) => Math.abs(it.box.top - box.top) < nearest + 4);
  return row.sort((one, other) => Math.abs(one.box.left - box.left) - Math.abs(other.box.left - box.left))[0]?.element;
}

// A tile, and what it opens to

function clusterTile(tile, { isOpen, isAlone, turn }) {
  const marks = marksOf(tile);
  const name = isAlone ? [h("span", { class: "cluster-namespace" }, h("bdi", {}, namespaceOf(tile)), "/"), h("bdi", {}, nameOf(tile))] : h("bdi", {}, nameOf(tile));
  return h(
    "li",
    { class: ["cluster-tile", LOOKS[marks[0]], isOpen && "is-open"], data: { key: tile.key } },
    h("button", { type: "button", class: "cluster-toggle", "aria-expanded": String(isOpen), "aria-label": `${tile.key}: ${marks.map((mark) => MARK_WORDS[mark].toLowerCase()).join(", ")}`, onclick: turn }, h("span", { class: "cluster-name" }, name), h("span", { class: "cluster-marks" }, marks.map(marked)), icon("open")),
    why(tile, isOpen),
    h("p", { class: "cluster-counts" }, counts(tile)),
    isOpen ? details(tile) : null,
  );
}

function why(tile, isOpen) {
  if (isUnreachable(tile)) return h("p", { class: "cluster-why tone-bad" }, h("bdi", {}, tile.message || "No reason is known."), tile.since ? [" (for ", t(tile.since, { words: age }), ")"] : null);
  if (tile.waitingFor) return h("p", { class: "cluster-why" }, h("bdi", {}, tile.waitingFor));
  if (isOpen) return null; // its Machines show their reasons
  const [first] = (tile.active ?? []).filter(({ isApproved }) => !isApproved);
  return first?.message ? h("p", { class: "cluster-why" }, h("bdi", {}, first.message)) : null;
}

function counts({ machines = 0, enabled = 0, nodes = 0, version, activeCount = 0 }) {
  const under = activeCount ? [h("strong", {}, `${activeCount} in progress`), " · "] : null;
  return [under, `${enabled} of ${some(machines, "Machine")} enabled · ${some(nodes, "node")}`, version ? [" · ", h("bdi", {}, version)] : null];
}

function details(tile) {
  const facts = [
    ["Server", tile.server ? h("bdi", { class: "mono" }, tile.server) : null],
    ["Connection", [MARK_WORDS[tile.connection] ?? "Reachable", tile.since ? [" for ", t(tile.since, { words: age })] : null]],
    ["Last contact", tile.connection === "connected" ? null : (t(tile.lastResponse) ?? "never")],
    ["Budgets", tile.budgets?.length ? tile.budgets.map((name, index) => [index ? ", " : "", h("bdi", {}, name)]) : null],
  ].filter(([, value]) => value);
  const active = tile.active ?? [];
  const more = (tile.activeCount ?? 0) - active.length;
  return h(
    "div",
    { class: "cluster-more" },
    h("dl", { class: "facts" }, facts.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    active.length ? h("ul", { class: "machines", "aria-label": `Machines of ${tile.key} in progress` }, active.map((machine) => machineLine(machine, tile))) : h("p", { class: "dim" }, "No Machine is being deleted, and no maintenance is requested."),
    more > 0 ? h("p", { class: "dim" }, `And ${more.toLocaleString("en")} more.`) : null,
    commands(`cluster ${tile.key}`, tile.commands, "Commands for the cluster"),
  );
}

function machineLine(machine, tile) {
  return h(
    "li",
    { class: "machine" },
    h("div", { class: "machine-head" }, h("strong", {}, h("bdi", {}, machine.name)), h("span", { class: "tag" }, machine.request === "deletion" ? "Deletion" : "Maintenance"), machine.isApproved ? verdict("good", "Approved") : verdict("warn", "Not approved yet", "clock"), times(machine)),
    machine.node ? h("p", { class: "dim small" }, "Node ", h("bdi", {}, machine.node)) : null,
    machine.message ? h("p", { class: "machine-why" }, h("bdi", {}, machine.message)) : null,
    commands(`machine ${tile.key} ${machine.name}`, machine.commands, "Commands", !machine.isApproved),
  );
}

function times({ since, deadline }) {
  const parts = [since ? ["requested ", t(since)] : null, deadline ? ["time limit: ", t(deadline)] : null].filter(Boolean);
  return parts.length ? h("span", { class: "note" }, parts.map((part, index) => [index ? " · " : "", part])) : null;
}

function commands(key, list = [], title, isOpen = false) {
  if (!list.length) return null;
  const one = (it) => h("div", { class: "cluster-command" }, h("h3", {}, it.title), it.reason ? h("p", { class: "dim small" }, it.reason) : null, command(it.command, { title: it.title }));
  return fold(key, title, { isOpen }, h("div", { class: "cluster-commands" }, list.map(one)));
}

function awayCounts(lost) {
  const counts = ["unreachable", "unreadable"].map((mark) => [lost.filter(({ connection }) => connection === mark).length, mark]);
  return counts.filter(([count]) => count).map((it) => it.join(" ")).join(", ");
}

function attention(lost) {
  if (lost.length === 0) return null;
  const item = (tile) => h("li", {}, h("div", { class: "item-head" }, icon(tile.connection), clusterLink(tile.key), tile.since ? h("span", { class: "note" }, "for ", t(tile.since, { words: age })) : null), h("p", {}, h("bdi", {}, tile.message || "No reason is known.")));
  const more = lost.length > FEW ? h("a", { class: "more", href: "#/clusters?state=unreachable,unreadable" }, `All ${lost.length} that cannot be reached or read`) : null;
  return card("Needs attention", { className: "attention", note: awayCounts(lost) }, h("ul", {}, lost.slice(0, FEW).map(item)), more);
}

function budget({ name, used, limit, text, holders = [], waiting = [] }) {
  const links = (keys) => [keys.slice(0, 3).map((key, index) => [index ? ", " : "", clusterLink(key)]), keys.length > 3 ? ` and ${keys.length - 3} more` : ""];
  return h(
    "li",
    {},
    h("div", { class: "item-head" }, h("strong", {}, h("bdi", {}, name)), h("span", { class: "note" }, `${used} of ${limit}`)),
    meter(used, limit, `Budget ${name}: ${used} of ${limit} used`),
    text ? h("p", {}, h("bdi", {}, text)) : null,
    holders.length ? h("p", {}, "In maintenance: ", links(holders)) : null,
    waiting.length ? h("p", {}, "Waiting: ", links(waiting)) : null,
  );
}

function some(number, noun) {
  return `${number.toLocaleString("en")} ${noun}${number === 1 ? "" : "s"}`;
}

function counted(shown, total) {
  return shown === total ? some(total, "cluster") : `${shown.toLocaleString("en")} of ${some(total, "cluster")}`;
}
