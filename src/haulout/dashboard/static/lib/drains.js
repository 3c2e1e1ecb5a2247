// A drain: its progress and its blockers. Pods with the same blocker are grouped, as one fix helps all of them.

import { h, icon } from "./dom.js";
import { card } from "./components.js";
import { fold } from "./sections.js";
import { ms, nowMs, short, t } from "./time.js";

const FEW = 8; // pods listed before folding

export function drainCard(drain) {
  const { total = 0, removed = 0, terminating = 0, isDone, message, pendingPods = [], blockers = [], started, deadline } = drain;
  const share = total ? Math.floor((100 * removed) / total) : isDone ? 100 : 0;
  const isLate = deadline && ms(deadline) < nowMs();
  return card(
    `Drain by ${drain.owner.replace("/", " ")}`,
    { className: "drain", note: started ? ["began ", t(started)] : "" },
    h(
      "div",
      { class: "body" },
      h(
        "div",
        { class: "drain-progress", role: "progressbar", "aria-label": "Pods that have left", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": share },
        h("span", { class: "drain-removed", style: { width: `${share}%` } }),
        h("span", { class: "drain-terminating", style: { width: `${total ? (100 * terminating) / total : 0}%` } }),
      ),
      h(
        "p",
        { class: "drain-figures" },
        h("b", {}, isDone ? "Done: " : `${share} %: `),
        `${removed} of ${total} pods have left`,
        terminating ? `, ${terminating} ${terminating === 1 ? "is" : "are"} terminating` : "",
        deadline ? [h("span", { class: isLate ? "tone-bad" : "dim" }, isLate ? " · past its deadline since " : " · deadline ", short(deadline), " (", t(deadline), ")")] : "",
      ),
      message && !blockers.length ? h("p", {}, h("bdi", {}, message)) : null,
      blockers.length ? [h("h3", { class: "drain-head" }, "Blocked by"), h("ul", { class: "blockers" }, grouped(blockers).map(blocker))] : null,
      pendingPods.length ? podList(drain, pendingPods) : null,
    ),
  );
}

function grouped(blockers) {
  const groups = new Map();
  for (const it of blockers) {
    const key = JSON.stringify([it.kind, it.object, it.workload, it.reason, it.remedy]);
    const group = groups.get(key) ?? { ...it, pods: [] };
    group.pods.push(it.pod);
    if (it.since && (!group.since || ms(it.since) < ms(group.since))) group.since = it.since;
    groups.set(key, group);
  }
  return [...groups.values()].sort((a, b) => (a.since ? ms(a.since) : Infinity) - (b.since ? ms(b.since) : Infinity));
}

function blocker({ kind, object, workload, reason, remedy, since, pods }) {
  return h(
    "li",
    {},
    h("p", { class: "blocker-head" }, icon("blocked"), h("b", {}, h("bdi", {}, object || kind)), since ? h("span", { class: "dim" }, "since ", short(since), " (", t(since), ")") : null),
    reason ? h("p", {}, h("bdi", {}, reason)) : null,
    h("p", { class: "dim small" }, workload ? [h("bdi", {}, workload), ": "] : "", h("bdi", {}, some(pods))),
    remedy ? h("p", { class: "blocker-remedy" }, h("b", {}, "Remedy: "), h("bdi", {}, remedy)) : null,
  );
}

function some(pods) {
  return pods.length > 4 ? `${pods.slice(0, 3).join(", ")} and ${pods.length - 3} more` : pods.join(", ");
}

function podList(drain, pendingPods) {
  const list = h("ul", { class: "pods" }, pendingPods.map((pod) => h("li", {}, h("bdi", {}, pod))));
  return fold(`pods ${drain.owner}`, `${pendingPods.length} ${pendingPods.length === 1 ? "pod" : "pods"} left`, { isOpen: pendingPods.length <= FEW }, list);
}
