// History of all nodes, including deleted ones, newest first; also as a CSV download.
//
// Filters in the URL: `q`, `what`, `node`, `since`. The page is not live: each request reads the records of all nodes.

import { DAY } from "../lib/axis.js";
import { h, icon, replace, setText } from "../lib/dom.js";
import { historyTable } from "../lib/history_list.js";
import { filterBar } from "../lib/filter_fields.js";
import { button, choose, command, empty, failure, loading, pageHead, segments } from "../lib/components.js";

const SPANS = { "1d": DAY, "1w": 7 * DAY, "1mo": 30 * DAY, all: null };
const USUAL = "1w";
const WORDS = { "1d": "the last day", "1w": "the last 7 days", "1mo": "the last 30 days", all: "all entries" };
// Components that cordon nodes follow, as the answer names them.
const KINDS = [
  { value: "profile", text: "Profiles" },
  { value: "NodeMaintenance", text: "NodeMaintenances" },
  { value: "Node", text: "Nodes deleted or created" },
  { value: "history", text: "Gaps" },
];

export function mount(root, context) {
  const { api, store, go } = context;
  let data = null;
  let components = [];
  let problem = null;
  let request = null;
  let loadedQuery = ""; // the query of `data` or `problem`

  const setParameters = (parameters) => go({ parameters: { ...context.route.parameters, ...parameters } }, { replace: true });
  const bar = filterBar(
    "Filter the history",
    [
      { name: "q", label: "Search the history" },
      { name: "object", label: "Object", all: "All entries", options: KINDS },
      { name: "node", label: "Node", all: "All nodes", options: [] },
    ],
    setParameters,
  );
  const spans = segments("Time range", Object.keys(SPANS).map((value) => ({ value, text: value === "all" ? "All" : value, title: WORDS[value] })), "", (value) => setParameters({ since: value === USUAL ? "" : value }));
  const download = h("a", { class: "button", download: "haulout-history.csv", title: "Download all matching entries as CSV" }, icon("download"), h("span", {}, "CSV"));
  const again = button("Refresh", () => load(), { mark: "refresh" });
  const count = h("span", { class: "total" });
  const place = h("div", { class: "history-place" });
  replace(root, pageHead(["History", count], h("div", { class: "row" }, spans, again, download)), bar.element, place);
  const removeKey = context.keys.on("/", "Search", () => bar.focus());
  load();
  show();

  function span() {
    const { since = "" } = context.route.parameters;
    return Object.hasOwn(SPANS, since) ? since : USUAL;
  }

  function wanted() {
    const { q = "", object = "", node = "" } = context.route.parameters;
    return { q, object, node, since: span() };
  }

  function query({ since, ...rest }) {
    const length = SPANS[since];
    return { ...rest, from: length === null ? "" : new Date(store.now() - length).toISOString() };
  }

  async function load() {
    request?.abort();
    const mine = (request = new AbortController());
    const now = wanted();
    loadedQuery = JSON.stringify(now);
    try {
      const answer = await api.get("history", query(now), { signal: mine.signal });
      if (mine !== request) return;
      [data, problem, components] = [answer, null, answer.components ?? []];
    } catch (error) {
      if (mine !== request || error.name === "AbortError") return;
      [data, problem] = [null, error];
    }
    request = null;
    show();
  }

  function show() {
    bar.show(context.route.parameters, { object: [...KINDS, ...components] });
    choose(spans, span());
    download.setAttribute("href", api.address("history.csv", query(wanted())));
    again.disabled = request !== null;
    if (problem) replace(place, failure(problem, load));
    else if (!data) replace(place, loading("the history"));
    else if (!data.entries?.length) replace(place, nothing());
    else replace(place, historyTable("History of all nodes", data.entries));
    setText(count, data ? counted(data) : "");
  }

  function nothing() {
    const { q, object, node } = wanted();
    if (q || object || node) return empty("No matching entries", "Nothing matches the search and the filters. Choose a longer time range or fewer filters.");
    if (store.summary && !store.summary.hasHistory) return h("div", { class: "empty" }, h("p", { class: "empty-title" }, "No history is kept"), h("p", {}, "The CRD of MaintenanceRecord is not installed in this cluster. To install it:"), command("haulout manifests --crds-only | kubectl apply -f -"));
    return empty("No entries", "No maintenance started or ended in this time range. Choose a longer one.");
  }

  return {
    update(kind) {
      if (kind === "route") {
        show();
        if (JSON.stringify(wanted()) !== loadedQuery) load();
      } else if (kind === "summary" && data && !data.entries?.length) show();
    },
    unmount() {
      request?.abort();
      request = null;
      bar.end();
      removeKey();
    },
  };
}

function counted({ entries = [], total = 0 }) {
  const words = `${total} ${total === 1 ? "entry" : "entries"}`;
  return entries.length < total ? `the newest ${entries.length} of ${words}` : words;
}
