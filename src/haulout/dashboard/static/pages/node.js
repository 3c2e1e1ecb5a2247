// One node: its state, what it waits for, what blocks it, and what to do next.
//
// The page loads the details once and follows the node in the event stream. Unchanged sections are not redrawn.

import { actionButton } from "../lib/actions.js";
import { h, icon, replace } from "../lib/dom.js";
import { drainCard } from "../lib/drains.js";
import { historyTable } from "../lib/history_list.js";
import { noticeFacts, onTimeMark } from "../lib/notices.js";
import { button, card, command, copyButton, empty, failure, loading, pageHead, stateMark } from "../lib/components.js";
import { profileCard } from "../lib/profiles.js";
import { format } from "../lib/route.js";
import { Sections, fold } from "../lib/sections.js";
import { full, ms, nowMs, short, t } from "../lib/time.js";

const REST = 1500; // minimum milliseconds between two reloads because of changes
const ELSEWHERE = new Set(["hold", "release", "start"]); // actions with a button in the header
const FEW = 15; // entries of the history that are shown at first

export function mount(root, context) {
  const { api, store } = context;
  const name = context.route.name;
  const sections = new Sections();
  let detail = null;
  let problem = null;
  let request = null;
  let requestedAt = 0;
  let later = 0;
  let isAllHistory = false;

  const title = pageHead(h("span", { class: "node-title" }, h("bdi", {}, name), copyButton(name, "Copy the name")), sections.place("actions"));
  const content = h("div", {});
  replace(root, h("nav", { class: "crumbs", "aria-label": "Breadcrumb" }, h("a", { href: format({ page: "fleet" }) }, "Fleet"), icon("open"), h("span", { class: "dim" }, "Node")), title, content);
  replace(content, loading("the node"));
  store.follow(name);
  load();

  async function load() {
    clearTimeout(later);
    request?.abort();
    const mine = (request = new AbortController());
    requestedAt = Date.now();
    try {
      const answer = await api.get(`nodes/${encodeURIComponent(name)}`, {}, { signal: mine.signal });
      if (mine === request) [detail, problem] = [answer, null];
    } catch (error) {
      if (mine !== request || error.name === "AbortError") return;
      problem = error;
      if (error.status === 404) detail = null;
    }
    if (mine === request) show();
  }

  function reload() {
    clearTimeout(later);
    later = setTimeout(load, Math.max(0, requestedAt + REST - Date.now()));
  }

  function show() {
    if (!detail) return void replace(content, gone());
    if (!content.querySelector(".node-grid")) replace(content, skeleton());
    const { summary: tile } = detail;
    const session = store.session?.actions ?? [];
    sections.show("problem", problem && problem.message, (it) => it && h("p", { class: "callout level-warning", role: "status" }, icon("warning"), `Not up to date: ${it}`));
    sections.show("actions", [tile.hold, tile.maintenance, session, detail.maintenances?.length], actions);
    sections.show("lead", [tile, detail.problem, detail.nextReconcile, detail.requeueOn, detail.kubelet, detail.created], lead);
    sections.show("commands", [detail.commands, session], commands);
    sections.show("drains", detail.drains, (list) => list?.length && h("div", { class: "stack" }, list.map(drainCard)));
    sections.show("profiles", detail.profiles, (list) => list?.length && h("div", { class: "stack" }, list.map(profileCard)));
    sections.show("maintenances", [detail.maintenances, tile.message, session], maintenances);
    sections.show("notices", detail.notices, notices);
    sections.show("history", [detail.history, detail.historyProblem, isAllHistory], history);
    sections.show("facts", [detail.uid, detail.providerID, detail.kubelet, detail.created, detail.labels, detail.taints, detail.conditions], facts);
  }

  function skeleton() {
    const place = (key) => sections.place(key);
    return [
      place("problem"),
      place("lead"),
      h("div", { class: "node-grid" }, h("div", { class: "node-main" }, place("maintenances"), place("drains"), place("profiles"), place("history")), h("div", { class: "node-side" }, place("commands"), place("notices"), place("facts"))),
    ];
  }

  function gone() {
    if (problem?.status === 404) return empty("Node not found", "It may have been deleted, or the operator has not seen it yet.", h("a", { class: "button", href: format({ page: "fleet", parameters: { q: name } }) }, "Search the fleet"));
    return failure(problem, load);
  }

  function actions() {
    const { summary: tile, maintenances: ordered = [] } = detail;
    const node = tile.name;
    return h(
      "div",
      { class: "row" },
      tile.hold
        ? actionButton(context, { action: "release", node }, { title: "Release", mark: "check", explain: `Removes the hold: maintenance may start on ${node} again. The node is held by ${tile.hold}.` })
        : actionButton(context, { action: "hold", node }, { title: "Hold", mark: "hold", explain: `No new maintenance starts on ${node}. Maintenance in progress continues.` }),
      ordered.length ? null : actionButton(context, { action: "start", node }, { title: "Start maintenance", mark: "draining", kind: "danger", explain: `Creates a NodeMaintenance: ${node} is cordoned and drained within the budgets, and stays out of service until the NodeMaintenance is deleted.` }),
    );
  }

  function lead() {
    const { summary: tile, problem: stopped, nextReconcile, requeueOn = [], created } = detail;
    const tag = (mark, text, tone = "") => h("span", { class: ["tag", tone] }, mark ? icon(mark) : null, h("bdi", {}, text));
    return h(
      "section",
      { class: ["lead", `is-${tile.state}`], "aria-label": "Status" },
      h("p", { class: "lead-state" }, stateMark(tile.state), tile.since ? h("span", { class: "muted" }, "since ", short(tile.since), " (", t(tile.since), ")") : null),
      h("p", { class: "lead-why" }, h("bdi", {}, tile.message || (tile.state === "idle" ? "No maintenance is in progress, and none is announced." : "No reason is known."))),
      stopped ? h("p", { class: "callout level-critical" }, icon("critical"), h("span", {}, h("b", {}, "The operator does not manage this node: "), h("bdi", {}, stopped))) : null,
      tile.hold ? h("p", { class: "callout level-warning" }, icon("hold"), h("span", {}, h("b", {}, "On hold: "), h("bdi", {}, tile.hold))) : null,
      next(tile, nextReconcile, requeueOn),
      h(
        "p",
        { class: "row lead-tags" },
        tile.isReady === false ? tag("unready", "Not ready", "tone-bad") : null,
        tile.isCordoned ? tag("cordon", "Cordoned") : null,
        tile.zone ? tag("", `zone ${tile.zone}`) : null,
        tile.pool ? tag("", `pool ${tile.pool}`) : null,
        detail.kubelet ? tag("", `kubelet ${detail.kubelet}`) : null,
        created ? h("span", { class: "tag" }, "created ", t(created)) : null,
      ),
    );
  }

  function next(tile, nextReconcile, requeueOn) {
    const at = tile.nextAt ?? nextReconcile;
    if (!at && !requeueOn.length) return null;
    return h(
      "p",
      { class: "lead-next" },
      icon("clock"),
      h(
        "span",
        {},
        at ? [ms(at) < nowMs() ? "Due " : "Next: ", h("b", {}, t(at)), ` (${short(at)} UTC)`] : "Reconciled again",
        requeueOn.length ? `${at ? ", or earlier" : ""} when ${listed(requeueOn)}` : "",
        ".",
      ),
    );
  }

  function commands() {
    const list = detail.commands ?? [];
    if (!list.length) return null;
    return card(
      "Next steps",
      {},
      h(
        "ul",
        { class: "body commands" },
        list.map(({ title: what, command: text, reason, action }) =>
          h(
            "li",
            {},
            h("div", { class: "command-head" }, h("h3", {}, h("bdi", {}, what)), action && !ELSEWHERE.has(action.action) && !action.maintenance ? actionButton(context, action, { title: what, explain: reason || text }) : null),
            reason ? h("p", { class: "dim small" }, h("bdi", {}, reason)) : null,
            command(text, { title: what }),
          ),
        ),
      ),
    );
  }

  function maintenances() {
    const list = detail.maintenances ?? [];
    if (!list.length) return null;
    return card(
      list.length === 1 ? "NodeMaintenance" : `${list.length} NodeMaintenances`,
      {},
      h(
        "ul",
        { class: "body maintenances" },
        list.map((it) =>
          h(
            "li",
            {},
            h(
              "div",
              { class: "command-head" },
              h("h3", {}, h("bdi", {}, it.name), " ", h("span", { class: ["tag", it.phase === "Failed" && "tone-bad"] }, h("bdi", {}, it.isDeleting ? "Being deleted" : it.phase || "Not processed yet"))),
              it.isDeleting ? null : actionButton(context, { action: "cancel", node: it.node, maintenance: it.name }, { title: "End maintenance", kind: "danger", explain: `Deletes NodeMaintenance ${it.name}: ${it.node} is uncordoned and its taints are removed.` }),
            ),
            it.reason ? h("p", {}, h("bdi", {}, it.reason)) : null,
            it.error && it.error !== detail.summary.message ? h("p", { class: "tone-bad" }, h("bdi", {}, it.error)) : null,
            it.queuePosition ? h("p", {}, `Position ${it.queuePosition} in the queue for the budget.`) : null,
            h("p", { class: "dim small" }, it.requestedBy ? ["by ", h("bdi", {}, it.requestedBy), " "] : "", it.created ? t(it.created) : ""),
          ),
        ),
      ),
    );
  }

  function notices() {
    const list = detail.notices ?? [];
    if (!list.length) return null;
    return card(
      "Announced maintenance",
      { note: h("a", { href: format({ page: "notices", parameters: { q: name } }) }, "All notices") },
      h(
        "ul",
        { class: "body maintenances" },
        list.map((it) =>
          h("li", {}, h("div", { class: "command-head" }, h("h3", {}, h("bdi", {}, it.kind), it.reason ? [" ", h("span", { class: "dim" }, h("bdi", {}, it.reason))] : null), h("span", { class: "tag" }, h("bdi", {}, it.phase))), it.start ? h("p", {}, short(it.start), " UTC, ", h("b", {}, t(it.start))) : null, onTimeMark(it), fold(`notice ${it.name}`, "More", {}, noticeFacts(it))),
        ),
      ),
    );
  }

  function history() {
    const list = detail.history ?? [];
    const shown = isAllHistory ? list : list.slice(0, FEW);
    const rest = list.length - shown.length;
    return card(
      "History",
      { note: list.length ? "newest first" : "" },
      detail.historyProblem ? h("p", { class: "body dim" }, h("bdi", {}, detail.historyProblem)) : null,
      shown.length ? historyTable("History of the node", shown) : detail.historyProblem ? null : h("p", { class: "body dim" }, "No entries yet."),
      rest > 0 ? h("div", { class: "body" }, button(`Show ${rest} more`, () => ((isAllHistory = true), show()))) : null,
    );
  }

  function facts() {
    const { labels = {}, taints = [], conditions = [] } = detail;
    const entries = Object.entries(labels).sort(([a], [b]) => a.localeCompare(b));
    const identity = Object.entries({ Machine: detail.providerID, UID: detail.uid, Kubelet: detail.kubelet, Created: detail.created && full(detail.created) }).filter(([, value]) => value);
    return card(
      "About the node",
      {},
      identity.length ? h("dl", { class: "body facts small" }, identity.map(([word, value]) => [h("dt", {}, word), h("dd", { class: "mono" }, value)])) : null,
      fold("node conditions", "Conditions", { note: String(conditions.length) }, h("ul", { class: "conditions" }, conditions.map(condition))),
      fold("node taints", "Taints", { note: String(taints.length) }, h("ul", { class: "pods" }, taints.map((it) => h("li", {}, h("bdi", {}, it))))),
      fold("node labels", "Labels", { note: String(entries.length) }, h("ul", { class: "pods" }, entries.map(([key, value]) => h("li", {}, h("span", { class: "dim" }, h("bdi", {}, key), "="), h("bdi", {}, value))))),
    );
  }

  return {
    update(kind, data) {
      if (kind === "node" && data?.summary?.name === name) {
        [detail, problem] = [data, null];
        show();
      } else if (kind === "node" && (data?.name === name || data?.node === name)) reload();
      else if (kind === "nodes" && [...(data.changed ?? []).map((it) => it.name), ...(data.deleted ?? [])].includes(name)) reload();
      else if (kind === "fleet" && detail) reload();
      else if (kind === "session" && detail) show();
    },
    unmount() {
      clearTimeout(later);
      request?.abort();
      request = null;
      store.follow(null);
    },
  };
}

function condition({ type, status, reason, message, since }) {
  return h("li", {}, h("p", {}, h("b", {}, h("bdi", {}, type)), " ", h("bdi", {}, status), reason ? [" · ", h("bdi", {}, reason)] : "", since ? [" · ", t(since)] : ""), message ? h("p", { class: "dim" }, h("bdi", {}, message)) : null);
}

function listed(words) {
  return words.length < 2 ? words.join("") : `${words.slice(0, -1).join(", ")} or ${words.at(-1)}`;
}
