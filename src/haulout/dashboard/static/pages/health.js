// The health of the operator: leader, watches, queues, calls to the API server, components, and recent warnings of the
// log. Problems come first and are counted in the headings.
//
// Polled every few seconds while the page is open: there is no event for it.

import { h, replace } from "../lib/dom.js";
import { LEVEL_ICONS, button, card, empty, failure, loading, pageHead, table, verdict } from "../lib/components.js";
import { age, duration } from "../lib/time.js";

const EVERY = 5000; // milliseconds
const SLOW = 1; // seconds from which a call or a wait counts as slow
const MOST = 10; // rows of a table before folding
const whole = new Set(); // tables that were unfolded

export function mount(root, context) {
  const body = h("div", {}, loading("health"));
  let timer = 0;
  let known = null;
  let last = ""; // what is shown, as a text to compare with
  const asking = new AbortController();

  async function look() {
    clearTimeout(timer);
    try {
      known = await context.api.get("health", {}, { signal: asking.signal });
      show();
    } catch (error) {
      if (error.name === "AbortError") return;
      known = null;
      last = "";
      replace(body, failure(error, look));
    }
    if (!document.hidden) timer = setTimeout(look, EVERY);
  }

  function show() {
    if (!known || !context.store.summary) return;
    const serialized = JSON.stringify([known, context.store.summary.leader]);
    if (serialized === last || isMarked(body)) return;
    keepingFocus(body, () => replace(body, content(known, context)));
    last = serialized;
  }

  replace(root, pageHead("Health", button("Refresh", look, { mark: "refresh" })), body);
  look();
  return {
    update(kind, data) {
      if (kind === "connection" && data.state === "live") look();
      if (kind === "summary") show();
    },
    unmount() {
      clearTimeout(timer);
      asking.abort();
    },
  };
}

// Text is selected, perhaps to copy it: do not redraw.
function isMarked(body) {
  const selection = getSelection();
  return !selection.isCollapsed && body.contains(selection.anchorNode);
}

function keepingFocus(body, act) {
  const all = () => [...body.querySelectorAll("[tabindex], button, a")];
  const at = all().indexOf(document.activeElement);
  act();
  if (at >= 0) all()[at]?.focus({ preventScroll: true });
}

function content(health, { t, store }) {
  return [
    about(health, t, store),
    h("div", { class: "columns" }, warnings(health.warnings ?? [], t), components(health.components ?? [], t), watches(health.watches ?? [], t), leases(health.leases ?? [], t), queues(health.queues ?? []), requests(health.requests ?? [])),
  ];
}

function about({ identity, version, started, python, memoryBytes, cpuSeconds, viewers }, t, store) {
  const leader = store.summary?.leader;
  const facts = [
    ["Leader", leader?.identity ? [h("bdi", {}, leader.identity), leader.since ? [" for ", t(leader.since, { words: age })] : ""] : verdict("bad", "none")],
    ["Answered by", leader?.identity === identity ? null : h("bdi", {}, identity)],
    ["Version", [version, python ? ` on Python ${python}` : ""]],
    ["Uptime", t(started, { words: age })],
    ["Memory", memoryBytes ? `${(memoryBytes / 1e6).toFixed(0)} MB` : null],
    ["CPU", cpuSeconds ? `${duration(cpuSeconds)} total` : null],
    ["Viewers", viewers ? String(viewers) : null],
  ].filter(([, value]) => value !== null);
  return h("dl", { class: "figures" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

function section(title, bad, total, ...children) {
  const note = bad ? verdict("bad", `${bad} of ${total} unhealthy`) : total ? verdict("good", "all healthy") : "";
  return card(title, { tools: h("span", { class: "note" }, note) }, children);
}

function warnings(all, t) {
  if (all.length === 0) return card("Recent warnings", {}, empty("No warnings", "Warnings and errors from the log appear here."));
  const columns = [
    { title: "Time", className: "tight", cell: ({ time }) => t(time) },
    { title: "Message", cell: ({ level, message }) => h("span", { class: ["trouble", level === "critical" ? "tone-bad" : "tone-warn"] }, verdictIcon(level), h("bdi", {}, message)) },
    { title: "Count", numeric: true, cell: ({ count = 1 }) => count.toLocaleString("en") },
  ];
  return card("Recent warnings", { note: "newest first" }, table("Recent warnings", columns, all));
}

function verdictIcon(level) {
  return verdict(level === "critical" ? "bad" : "warn", h("span", { class: "unseen" }, level), LEVEL_ICONS[level]);
}

function components(all, t) {
  const columns = [
    { title: "Component", className: "tight", cell: ({ name }) => h("bdi", {}, name) },
    { title: "Status", cell: ({ isHealthy, message }) => verdict(isHealthy ? "good" : "bad", h("bdi", {}, message || (isHealthy ? "healthy" : "unhealthy"))) },
    { title: "Last contact", className: "tight", cell: ({ lastResponse }) => t(lastResponse) },
  ];
  return section("Components", all.filter(({ isHealthy }) => !isHealthy).length, all.length, worstFirst("Components", columns, all, ({ isHealthy }) => !isHealthy));
}

function watches(all, t) {
  const isBad = ({ isSynced, problem, undecodableObjects }) => !isSynced || Boolean(problem) || Object.keys(undecodableObjects ?? {}).length > 0;
  const columns = [
    { title: "Resource", cell: ({ resource, ...rest }) => [h("bdi", {}, resource), wrong(rest)] },
    { title: "Synced", className: "tight", cell: ({ isSynced }) => (isSynced ? verdict("good", "yes") : verdict("bad", "no")) },
    { title: "Objects", numeric: true, cell: ({ objects = 0 }) => objects.toLocaleString("en") },
    { title: "Last contact", className: "tight", cell: ({ lastResponse }) => t(lastResponse) },
  ];
  return section("Watches", all.filter(isBad).length, all.length, worstFirst("Watches", columns, all, isBad));
}

function wrong({ problem, undecodableObjects = {} }) {
  const lines = [problem, ...Object.entries(undecodableObjects).map(([name, text]) => `${name}: ${text}`)].filter(Boolean);
  return lines.map((line) => h("div", { class: "small tone-bad" }, h("bdi", {}, line)));
}

function leases(all, t) {
  const columns = [
    { title: "Lease", cell: ({ name }) => h("bdi", {}, name) },
    { title: "Holder", cell: ({ holder }) => (holder ? h("bdi", {}, holder) : verdict("bad", "none")) },
    { title: "Renewed", className: "tight", cell: ({ renewed }) => t(renewed) },
    { title: "Held for", className: "tight", cell: ({ acquired }) => t(acquired, { words: age }) },
    { title: "Changes", numeric: true, cell: ({ transitions = 0 }) => String(transitions) },
  ];
  return section("Leases", all.filter(({ holder }) => !holder).length, all.length, worstFirst("Leases", columns, all, ({ holder }) => !holder));
}

function queues(all) {
  const isBad = ({ worstLagSeconds = 0 }) => worstLagSeconds >= SLOW;
  const columns = [
    { title: "Queue", cell: ({ name }) => h("bdi", {}, name) },
    { title: "Waiting", numeric: true, cell: ({ depth }) => depth.toLocaleString("en") },
    { title: "Longest recent wait", numeric: true, cell: ({ worstLagSeconds = 0 }) => slow(worstLagSeconds) },
  ];
  return section("Queues", all.filter(isBad).length, all.length, worstFirst("Queues", columns, all, isBad));
}

function requests(all) {
  const isBad = ({ errors = 0 }) => errors > 0;
  const columns = [
    { title: "Request", cell: ({ verb, resource }) => [h("span", { class: "muted" }, `${verb} `), h("bdi", {}, resource)] },
    { title: "Count", numeric: true, cell: ({ count }) => count.toLocaleString("en") },
    { title: "Errors", numeric: true, cell: ({ errors = 0 }) => (errors ? h("span", { class: "tone-bad" }, errors.toLocaleString("en")) : "0") },
    { title: "Median", numeric: true, cell: ({ medianSeconds = 0 }) => took(medianSeconds) },
    { title: "Slowest recent", numeric: true, cell: ({ worstSeconds = 0 }) => slow(worstSeconds) },
  ];
  return card("Requests to the API server", {}, worstFirst("Requests to the API server", columns, all, isBad));
}

function worstFirst(label, columns, rows, isBad) {
  if (rows.length === 0) return empty("None", "");
  const sorted = [...rows.filter(isBad), ...rows.filter((row) => !isBad(row))];
  if (rows.length <= MOST || whole.has(label)) return table(label, columns, sorted);
  const all = () => {
    whole.add(label);
    rest.replaceWith(table(label, columns, sorted));
  };
  const rest = h("div", {}, table(label, columns, sorted.slice(0, MOST)), h("div", { class: "more-rows" }, button(`All ${rows.length}`, all, { kind: "quiet", mark: "down" })));
  return rest;
}

function slow(seconds) {
  return seconds >= SLOW ? h("span", { class: "tone-bad" }, took(seconds)) : took(seconds);
}

function took(seconds) {
  if (seconds === 0) return "–";
  if (seconds < 0.001) return "< 1 ms";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  return seconds < 60 ? `${seconds.toFixed(1)} s` : duration(seconds);
}
