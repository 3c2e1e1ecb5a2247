// Past, current and future maintenance of all nodes on one time axis, as a chart or a table.
//
// Parameters in the URL: the filters of the fleet page, `span` and `at` (lib/view.js), and `view=table`.
// More than the visible range is requested, so that panning needs no request.

import { MINUTE } from "../lib/axis.js";
import { Chart } from "../lib/chart.js";
import { h, icon, replace, setText } from "../lib/dom.js";
import { filterBar } from "../lib/filter_fields.js";
import { STATES, button, choose, empty, failure, loading, nodeLink, pageHead, segments, stateWord } from "../lib/components.js";
import { KINDS, isOver, kindWord, durationText, look, timed } from "../lib/spans.js";
import { ms } from "../lib/time.js";
import { PRESETS, fromParameters, range, toParameters, zoomed } from "../lib/view.js";
import { chosenZone, otherZone } from "../lib/zones.js";

const FILTERS = ["q", "state", "zone", "pool", "profile"];
const REST = 10_000; // minimum milliseconds between two reloads because of changes
const SETTLED = 120; // after the last move
const PHONE = "(max-width: 600px)";
const WORDS = { "6h": "6 hours", "1d": "1 day", "1w": "1 week", "1mo": "30 days" };

export function mount(root, context) {
  const { api, store, go } = context;
  let view = fromParameters(context.route.parameters);
  let zone = chosenZone();
  let data = null;
  let loaded = null; // {start, end, filters}: what `data` is the answer to
  let request = null;
  let requestedAt = 0;
  let later = 0; // timer of a load of another range
  let refresh = 0; // timer of a reload because of changes
  let rendered = ""; // by the table
  let problem = null;

  const filters = () => Object.fromEntries(FILTERS.map((name) => [name, context.route.parameters[name] ?? ""]));
  const setParameters = (parameters) => go({ parameters: { ...context.route.parameters, ...parameters } }, { replace: true });
  const isTable = () => (context.route.parameters.view ?? (matchMedia(PHONE).matches ? "table" : "chart")) === "table";

  const span = h("p", { class: "note" });
  const bar = filterBar(
    "Filter nodes",
    [
      { name: "q", label: "Search nodes" },
      { name: "state", label: "State", all: "All states", options: STATES.map((value) => ({ value, text: stateWord(value) })) },
      { name: "zone", label: "Zone", all: "All zones", options: [] },
      { name: "pool", label: "Pool", all: "All pools", options: [] },
      { name: "profile", label: "Profile", all: "All profiles", options: [] },
    ],
    setParameters,
    span,
  );
  const zoneButton = h("button", { type: "button", class: "tl-zone", onclick: turnZone });
  const chart = new Chart({ zone, view: moved, tools: zoneButton });
  const presets = segments("Time range", Object.keys(PRESETS).map((value) => ({ value, text: value, title: WORDS[value] })), "", (value) => settle({ ...view, length: PRESETS[value] }));
  const views = segments("Show as", [{ value: "chart", text: "Chart", mark: "timeline" }, { value: "table", text: "Table", mark: "list" }], "", (value) => setParameters({ view: value }));
  const backToNow = button("Now", () => settle({ ...view, at: null }), { title: "Follow the current time (Home)" });
  const note = h("p", { class: "tl-note", role: "status" });
  const place = h("div", { class: "tl-place" });
  const closer = button("", () => zoom(1 / 1.6), { kind: "tl-step", title: "Zoom in (+)", "aria-label": "Zoom in" });
  const farther = button("", () => zoom(1.6), { kind: "tl-step", title: "Zoom out (−)", "aria-label": "Zoom out" });
  closer.append("+");
  farther.append("−");
  replace(
    root,
    pageHead("Timeline", h("div", { class: "row" }, backToNow, presets, h("span", { class: "tl-steps" }, farther, closer)), views),
    bar.element,
    note,
    place,
  );
  const keys = [
    context.keys.on("/", "Search", () => bar.focus()),
    context.keys.on("+", "Zoom in", () => zoom(1 / 1.6)),
    context.keys.on("-", "Zoom out", () => zoom(1.6)),
    context.keys.on("ArrowLeft", "Earlier", () => pan(-1)),
    context.keys.on("ArrowRight", "Later", () => pan(1)),
    context.keys.on("Home", "Follow the current time", () => settle({ ...view, at: null })),
    context.keys.on("↑ ↓", "Move between rows"),
    context.keys.on("Shift ← →", "Move between bars"),
  ];
  const clock = setInterval(passing, 1000);
  show();
  load();

  function zoom(factor) {
    settle(zoomed(view, factor, null, store.now()));
  }

  function pan(direction) {
    const { start, end } = range(view, store.now());
    settle({ ...view, at: (start + end) / 2 + (direction * view.length) / 8 });
  }

  function moved(next, isDone) {
    view = next;
    chart.look(view);
    say();
    if (isDone) settle(view);
    else reload(SETTLED);
  }

  function settle(next) {
    view = next;
    setParameters(toParameters(view));
    show();
    reload(SETTLED);
  }

  function turnZone() {
    zone = otherZone(zone);
    chart.zone = zone;
    if (data) chart.show(data);
    show();
  }

  // One second on: a view that goes along with now moves, and may come to the end of what is loaded.
  function passing() {
    if (document.hidden) return;
    chart.draw();
    if (isTable()) show();
    reload();
  }

  function reload(pause = 0) {
    if (isLoaded()) return;
    clearTimeout(later);
    later = setTimeout(load, Math.max(pause, 0));
  }

  function isLoaded() {
    if (request) return request.covers(range(view, store.now()), filters());
    return loaded !== null && loaded.covers(range(view, store.now()), filters());
  }

  async function load() {
    request?.abort.abort();
    const { start, end } = range(view, store.now());
    const wanted = covering(start - view.length, end + view.length, filters());
    request = { abort: new AbortController(), covers: wanted.covers };
    const mine = request;
    requestedAt = Date.now();
    try {
      const parameters = { from: iso(start - view.length), to: iso(end + view.length), ...filters() };
      const answer = await api.get("timeline", parameters, { signal: mine.abort.signal });
      if (mine !== request) return;
      [data, loaded] = [answer, wanted];
      chart.show(data);
      problem = null;
    } catch (error) {
      if (mine !== request || error.name === "AbortError") return;
      problem = error;
      loaded = wanted; // requested again by the user, or with the next change
    }
    request = null;
    show();
  }

  function show() {
    bar.show(context.route.parameters, { zone: store.summary?.zones ?? [], pool: store.summary?.pools ?? [], profile: store.summary?.profiles ?? [] });
    choose(presets, Object.keys(PRESETS).find((name) => PRESETS[name] === view.length) ?? "");
    choose(views, isTable() ? "table" : "chart");
    backToNow.disabled = view.at === null;
    setText(zoneButton, zone.word);
    zoneButton.title = zone.name === "utc" ? "Show local time" : "Show UTC";
    root.classList.toggle("is-chart", !isTable());
    say();
    if (problem && !data) replace(place, failure(problem, load));
    else if (!data) replace(place, loading("the timeline"));
    else if (!data.rows?.length) replace(place, nobody());
    else if (isTable()) showTable();
    else if (chart.element.parentNode !== place) replace(place, chart.element, legend());
    chart.look(view);
    const notes = [problem && data ? `Not up to date: ${problem.message}` : "", data?.problem, hiddenRows()].filter(Boolean);
    note.hidden = !notes.length;
    setText(note, notes.join(" "));
  }

  function say() {
    const { start, end } = range(view, store.now());
    setText(span, `${zone.minutes(start)} – ${zone.minutes(end)}`);
  }

  function hiddenRows() {
    const shown = data?.rows?.length ?? 0;
    return data?.total > shown && shown ? `${shown} of ${data.total} nodes are shown, those with maintenance first. Search or filter to see others.` : "";
  }

  function nobody() {
    const isNarrowed = FILTERS.some((name) => context.route.parameters[name]);
    return isNarrowed ? empty("No matching nodes", "Nothing matches the search and the filters.") : empty("No nodes", "No nodes are known yet.");
  }

  function showTable() {
    const { start, end } = range(view, store.now());
    const isVisible = (it) => it.from < end && (it.to === null || it.to > start);
    const rows = data.rows.flatMap(({ node, spans = [] }) => spans.map((it) => ({ node, span: timed(it) })));
    const all = [...(data.windows ?? []).map((it) => ({ node: "", span: timed(it) })), ...rows];
    const lines = all.filter(({ span: it }) => isVisible(it)).sort((a, b) => phase(a.span) - phase(b.span));
    const serialized = JSON.stringify([lines, zone.name, Math.floor(store.now() / MINUTE)]);
    if (serialized === rendered && place.querySelector("table")) return; // keep the reading position
    rendered = serialized;
    replace(place, lines.length ? asTable(lines) : nothing());
  }

  function nothing() {
    return empty("Nothing in this time range", "There is no maintenance in this time range. Choose a longer or a different one.");
  }

  function asTable(lines) {
    const time = (at) => (at === null ? h("span", { class: "dim" }, "unknown") : h("time", { datetime: iso(at), title: zone.other(at) || null }, zone.full(at)));
    const cell = (title, ...content) => h("td", { data: { title } }, h("div", {}, content));
    return h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-label": "Timeline as a table" },
      h(
        "table",
        { class: "stacked" },
        h("thead", {}, h("tr", {}, ["Node", "What", "State", "From", "To", "Duration", "Why"].map((it) => h("th", { scope: "col" }, it)))),
        h(
          "tbody",
          {},
          lines.map(({ node, span: it }) =>
            h(
              "tr",
              {},
              cell("Node", node ? nodeLink(node) : h("span", { class: "dim" }, "all nodes of the profile")),
              cell("Kind", what(it)),
              cell("State", it.state ? h("span", { class: ["tag", look(it) === "bad" && "tone-bad"] }, h("bdi", {}, it.state)) : ""),
              cell("From", time(it.from)),
              cell("To", time(it.to)),
              cell("Duration", durationText(it)),
              cell("Message", h("bdi", {}, it.message ?? "")),
            ),
          ),
        ),
      ),
    );
  }

  // Current first, then future, then past.
  function phase(it) {
    if (it.kind === "window" || it.kind === "blackout") return 3;
    return isOver(it) ? 2 : it.from > store.now() ? 1 : 0;
  }

  return {
    update(kind) {
      if (kind === "route") {
        const next = fromParameters(context.route.parameters);
        if (JSON.stringify(toParameters(next)) !== JSON.stringify(toParameters(view))) view = next;
        show();
        reload();
      } else if (kind === "nodes" || kind === "notices" || kind === "fleet") {
        clearTimeout(refresh);
        refresh = setTimeout(load, Math.max(0, requestedAt + REST - Date.now()));
      } else if (kind === "summary") show();
    },
    unmount() {
      clearInterval(clock);
      clearTimeout(later);
      clearTimeout(refresh);
      request?.abort.abort();
      request = null;
      bar.end();
      chart.end();
      for (const remove of keys) remove();
    },
  };
}

function what(it) {
  const word = kindWord(it);
  const hasKindInTitle = it.title.toLowerCase().startsWith(word.toLowerCase());
  return h("span", { class: "tl-what" }, icon(KINDS[it.kind]?.sign ?? "unknown"), h("span", {}, hasKindInTitle ? null : h("span", { class: "dim" }, `${word} `), h("bdi", {}, it.title)));
}

function covering(start, end, filters) {
  const serialized = JSON.stringify(filters);
  const width = end - start;
  return { covers: (wantedRange, others) => wantedRange.start >= start && wantedRange.end <= end && width / (wantedRange.end - wantedRange.start) < 12 && JSON.stringify(others) === serialized };
}

function iso(at) {
  return new Date(ms(at)).toISOString();
}

function legend() {
  const bar = (kind, state, text) => h("li", {}, h("span", { class: ["tl-key", "tl-bar", `kind-${kind}`, `look-${state}`] }, icon(state === "bad" ? "warning" : KINDS[kind].sign)), text);
  return h(
    "ul",
    { class: "tl-legend", "aria-label": "Legend" },
    bar("notice", "faint", "Notice planned"),
    bar("notice", "strong", "due"),
    bar("notice", "solid", "active"),
    bar("profile", "faint", "Maintenance required"),
    bar("profile", "solid", "In maintenance"),
    bar("maintenance", "solid", "NodeMaintenance"),
    bar("drain", "solid", "Drain"),
    bar("drain", "bad", "Failed or blocked"),
    h("li", {}, h("span", { class: "tl-key tl-band is-window" }), "Window"),
    h("li", {}, h("span", { class: "tl-key tl-band is-blackout" }), "Blackout"),
  );
}
