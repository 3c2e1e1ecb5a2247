// Notices: in progress and due first, then planned; finished ones are folded.
//
// Filters in the URL: `q`, `phase`, `source`, `kind`, `late`. Rows unfold to the details of a notice.

import { actionButton } from "../lib/actions.js";
import { h, icon, replace, setText } from "../lib/dom.js";
import { filterBar } from "../lib/filter_fields.js";
import { noticeFacts, onTimeMark } from "../lib/notices.js";
import { command, empty, failure, loading, nodeLink, pageHead, segments, choose } from "../lib/components.js";
import { Sections, fold } from "../lib/sections.js";
import { duration, full, ms, nowMs, short, t } from "../lib/time.js";

// Most important first, with the meaning of each.
const PHASES = {
  Active: "in progress",
  Due: "may start so soon that the node should be drained now",
  Planned: "announced, and not near yet",
  Missed: "the time has passed, and no start was reported",
  Completed: "finished",
  Cancelled: "will not take place",
};
const OVER = new Set(["Missed", "Completed", "Cancelled"]);
const CLOUDS = new Set(["aws", "oci", "azure", "gcp"]); // only the cloud can cancel its notices

export function mount(root, context) {
  const { store, go } = context;
  const sections = new Sections();
  const unfolded = new Set();
  let problem = null;

  const setParameters = (parameters) => go({ parameters: { ...context.route.parameters, ...parameters } }, { replace: true });
  const bar = filterBar(
    "Filter notices",
    [
      { name: "q", label: "Search notices" },
      { name: "phase", label: "Phase", all: "All phases", options: Object.keys(PHASES) },
      { name: "source", label: "Source", all: "All sources", options: [] },
      { name: "kind", label: "Kind", all: "All kinds", options: [] },
    ],
    setParameters,
  );
  const late = segments("Which", [{ value: "", text: "All" }, { value: "1", text: "Too late", mark: "warning" }], "", (value) => setParameters({ late: value }));
  const count = h("span", { class: "total" });
  const content = h("div", { class: "notice-groups" });
  replace(root, pageHead(["Notices", count], late), bar.element, content);
  const removeKey = context.keys.on("/", "Search", () => bar.focus());
  load();
  show();

  async function load() {
    try {
      await store.wantNotices();
      problem = null;
    } catch (error) {
      problem = error;
    }
    show();
  }

  function show() {
    const { parameters } = context.route;
    const all = [...(store.notices?.values() ?? [])];
    bar.show(parameters, { source: distinct(all, "source"), kind: distinct(all, "kind") });
    choose(late, parameters.late ? "1" : "");
    if (!store.notices) return void replace(content, problem ? failure(problem, load) : loading("notices"));
    const fitting = all.filter((it) => fits(it, parameters));
    setText(count, fitting.length === all.length ? counted(all.length) : `${fitting.length} of ${counted(all.length)}`);
    if (!fitting.length) return void replace(content, all.length ? empty("No matching notices", "Nothing matches the search and the filters.") : nothing());
    const phases = [...new Set([...Object.keys(PHASES), ...fitting.map((it) => it.phase)])];
    if (!content.querySelector(".section")) replace(content);
    for (const phase of phases) {
      const place = sections.place(phase);
      if (!place.parentNode) content.append(place);
      const of = fitting.filter((it) => it.phase === phase).sort((a, b) => order(a, b, phase));
      sections.show(phase, [of, store.session?.actions, parameters.phase === phase], ([list]) => (list.length ? group(phase, list) : null));
    }
  }

  function nothing() {
    return h(
      "div",
      { class: "empty" },
      h("p", { class: "empty-title" }, "No maintenance is announced"),
      h("p", {}, store.summary && !store.summary.hasNotices ? "Notices are not installed in this cluster. To install them:" : "Clouds, other tools and people announce maintenance. By hand:"),
      command(store.summary && !store.summary.hasNotices ? "haulout manifests --crds-only | kubectl apply -f -" : "haulout notice create NODE --kind Reboot --start +2h --end +3h --reason firmware"),
    );
  }

  function group(phase, list) {
    const rows = h("ul", { class: "notice-list" }, list.map(line));
    const isOpen = !OVER.has(phase) || context.route.parameters.phase === phase;
    return h("section", { class: ["card", "notice-group", `phase-${phase.toLowerCase().replace(/[^a-z]/g, "")}`], "aria-label": `${phase} notices` }, fold(`phase ${phase}`, [h("h2", {}, h("bdi", {}, phase)), h("span", { class: "notice-count" }, String(list.length))], { isOpen, note: PHASES[phase] ?? "" }, rows));
  }

  function line(it) {
    const details = h("div", { class: "notice-more", hidden: !unfolded.has(it.name) });
    const toggle = h("button", { type: "button", class: "button quiet notice-toggle", "aria-expanded": String(unfolded.has(it.name)), "aria-label": `Details of ${it.name}`, onclick: turn }, icon("open"));
    if (unfolded.has(it.name)) fill();

    function turn() {
      const isOpen = details.hidden;
      details.hidden = !isOpen;
      toggle.setAttribute("aria-expanded", String(isOpen));
      if (isOpen) unfolded.add(it.name);
      else unfolded.delete(it.name);
      if (isOpen) fill();
    }

    function fill() {
      replace(details, noticeFacts(it), cancel(it));
    }

    return h(
      "li",
      { class: "notice" },
      toggle,
      h("div", { class: "notice-when" }, when(it)),
      h("div", { class: "notice-node" }, it.node ? nodeLink(it.node) : h("span", { class: "dim" }, "no node yet"), h("span", { class: "dim small notice-name", title: it.name }, h("bdi", {}, it.name))),
      h("div", { class: "notice-kind" }, h("b", {}, h("bdi", {}, it.kind)), it.reason ? h("span", { class: "dim small" }, h("bdi", {}, it.reason)) : null),
      h("div", { class: "notice-source" }, h("span", { class: "tag" }, h("bdi", {}, it.source || "unknown")), it.rescheduled ? h("span", { class: "tag", title: it.rescheduled }, icon("refresh"), "Rescheduled") : null),
      h("div", { class: "notice-timely" }, onTimeMark(it)),
      details,
    );
  }

  function cancel(it) {
    if (OVER.has(it.phase)) return null;
    const text = `haulout notice cancel ${it.name}`;
    if (CLOUDS.has(it.source)) return h("p", { class: "dim small" }, "Only its cloud can cancel it.");
    const action = actionButton(context, { action: "cancel", notice: it.name, node: it.node }, { title: "Cancel notice", kind: "danger", explain: `Marks notice ${it.name} as cancelled: ${it.kind}${it.node ? ` of ${it.node}` : ""} will not take place. If the node was drained for it, its profile returns it to service.` });
    return h("div", { class: "notice-off" }, action, h("div", { class: "notice-command" }, command(text, { title: "Cancel notice" })));
  }

  return {
    update(kind) {
      if (kind === "notices" || kind === "route" || kind === "session") show();
      else if (kind === "summary" && !store.notices?.size) show();
      else if (kind === "fleet" && !store.notices) load();
    },
    unmount() {
      bar.end();
      removeKey();
    },
  };
}

// The time left: to the start, or to the end once it has started.
function when(it) {
  const [word, at] = it.phase === "Active" ? (it.end ? ["ends", it.end] : ["began", it.start]) : ["", it.start];
  if (!at) return h("span", { class: "dim" }, OVER.has(it.phase) ? "" : "at any moment");
  return [h("b", { class: "notice-count-down" }, word ? `${word} ` : "", t(at)), h("span", { class: "dim small", title: full(at) }, [short(it.start ?? at), "UTC", lasts(it)].filter(Boolean).join(" "))];
}

function lasts({ start, end }) {
  return start && end ? `for ${duration((ms(end) - ms(start)) / 1000)}` : "";
}

function order(a, b, phase) {
  const [first, second] = [a, b].map((it) => (it.start ? ms(it.start) : nowMs()));
  return OVER.has(phase) ? second - first : first - second;
}

function fits(it, { q = "", phase, source, kind, late }) {
  if (phase && it.phase !== phase) return false;
  if (source && it.source !== source) return false;
  if (kind && it.kind !== kind) return false;
  if (late && it.isOnTime !== false) return false;
  const searchText = [it.name, it.node, it.id, it.reason, it.description, it.source].join("\n").toLowerCase();
  return q.toLowerCase().split(/\s+/).every((word) => searchText.includes(word));
}

function distinct(all, key) {
  return [...new Set(all.map((it) => it[key]).filter(Boolean))].sort();
}

function counted(number) {
  return `${number} ${number === 1 ? "notice" : "notices"}`;
}
