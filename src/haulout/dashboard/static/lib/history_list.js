// History entries of a node, a notice or all nodes, newest first.

import { h } from "./dom.js";
import { nodeLink } from "./components.js";
import { duration, full, ms, relative, short } from "./time.js";

// Columns that are empty in all rows are left out.
const COLUMNS = [
  { title: "Time", cell: (it) => h("time", { datetime: it.time, title: `${full(it.time)}, ${relative(it.time)}` }, short(it.time), " UTC") },
  { title: "Node", cell: node, isUsed: (it) => it.node },
  { title: "Object", cell: (it) => [h("bdi", {}, reference(it.object ?? it.message ?? "")), (it.requestedBy ?? it.reporter) ? h("span", { class: "dim small by" }, " by ", h("bdi", {}, it.requestedBy ?? it.reporter)) : null] },
  { title: "Change", cell: change, isUsed: (it) => it.from || it.to || it.result || it.drainSeconds !== undefined },
  { title: "Duration", cell: lasted, isUsed: (it) => it.since },
  { title: "Reason", cell: (it) => it.reason && h("bdi", {}, it.reason), isUsed: (it) => it.reason },
];

export function historyTable(label, list) {
  const columns = COLUMNS.filter(({ isUsed }) => !isUsed || list.some(isUsed));
  const line = (it) => h("tr", {}, columns.map(({ title, cell }) => h("td", { data: { title } }, h("div", {}, cell(it)))));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": label },
    h(
      "table",
      { class: "stacked history-table" },
      h("thead", {}, h("tr", {}, columns.map(({ title }) => h("th", { scope: "col" }, title)))),
      h("tbody", {}, list.map(line)),
    ),
  );
}

// `profile/os` is a reference; entries of notices are whole sentences.
function reference(text) {
  return /^\w+\/\S+$/.test(text) ? text.replace("/", " ") : text;
}

// A deleted node has no page.
function node({ node: name, isDeleted, deleted }) {
  if (!isDeleted) return nodeLink(name);
  return [h("bdi", {}, name), " ", h("span", { class: "tag", title: deleted ? `deleted ${full(deleted)}` : null }, "deleted")];
}

function lasted({ time, since }) {
  if (!since) return null;
  const seconds = (ms(time) - ms(since)) / 1000;
  const remark = seconds < 0 ? "; a clock was set back meanwhile, so the duration is unknown" : "";
  return h("span", { title: `in the previous state since ${full(since)}${remark}` }, seconds < 0 ? "?" : duration(seconds));
}

function change({ from, to, result, drainSeconds: seconds, drainPods: pods }) {
  const drained = [seconds === undefined ? "" : duration(seconds), pods === undefined ? "" : `${pods} ${pods === 1 ? "pod" : "pods"}`].filter(Boolean).join(", ");
  const states = from || to ? [from ? h("bdi", {}, from) : null, h("span", { class: "dim" }, from ? " → " : "→ "), h("bdi", {}, to ?? "")] : null;
  return [states, states && result ? " " : null, result ? h("span", { class: "tag" }, h("bdi", {}, result)) : null, drained ? h("span", { class: "dim small" }, ` ${drained}`) : null];
}
