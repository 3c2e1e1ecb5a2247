// Profiles of a node: a diagram of each state machine, and the transitions from the current state with their checks.

import { h, icon } from "./dom.js";
import { machine, verdictOf } from "./state_machine.js";
import { card, verdict } from "./components.js";
import { fold } from "./sections.js";
import { t } from "./time.js";

const VERDICTS = {
  true: { tone: "good", mark: "check", word: "passes" },
  false: { tone: "bad", mark: "close", word: "does not pass" },
  unknown: { tone: "warn", mark: "unknown", word: "unknown" },
  unasked: { tone: "dim", mark: "unknown", word: "not evaluated" },
};

const WAYS = { open: ["check", "Passes:"], closed: ["close", "Does not pass:"], elsewhere: ["clock", "Not evaluated yet:"] };

export function profileCard(profile) {
  const current = (profile.transitions ?? []).filter((it) => it.isCurrent);
  return card(
    `Profile ${profile.name}`,
    { className: "profile", tools: h("span", { class: "profile-state" }, h("b", {}, h("bdi", {}, profile.state)), profile.since ? [" since ", t(profile.since, { words: sinceWords })] : null) },
    h(
      "div",
      { class: "body" },
      profile.error ? h("p", { class: "callout level-critical" }, icon("critical"), h("bdi", {}, profile.error)) : null,
      profile.waitingFor ? h("p", { class: "callout level-info" }, icon("clock"), h("span", {}, h("b", {}, "In transition: "), h("bdi", {}, profile.waitingFor))) : null,
      profile.transitions?.length ? drawing(profile) : null,
      current.length ? current.map((it) => transitionItem(profile, it)) : h("p", { class: "dim" }, (profile.transitions ?? []).length ? "No transition leaves this state." : "This profile has no transitions."),
      profile.notifications?.length ? h("p", { class: "dim small" }, `Notified: ${profile.notifications.join(", ")}.`) : null,
    ),
  );
}

const sinceWords = (time) => `${new Date(time).toISOString().slice(0, 16).replace("T", " ")} UTC`;

let lastWidth = 0; // of the last drawing: the next one most likely has the same, and is drawn without waiting for layout

// Draws for the available width, and again when it changes.
function drawing(profile) {
  const figure = h("figure", { class: "machine-place" }, lastWidth ? machine(profile, lastWidth) : null);
  let width = lastWidth;
  new ResizeObserver(([{ contentRect }]) => {
    const room = Math.floor(contentRect.width);
    if (!room || room === width) return;
    width = lastWidth = room;
    figure.replaceChildren(machine(profile, room));
  }).observe(figure);
  return figure;
}

function transitionItem(profile, transition) {
  const { target, expression, veto, error, checks = [], triggers = [], remedies = [] } = transition;
  const outcome = verdictOf(transition);
  return h(
    "section",
    { class: ["way", `is-${outcome}`] },
    h(
      "h3",
      {},
      icon(...WAYS[outcome]),
      h("span", {}, "to ", h("bdi", {}, target)),
      expression ? h("code", {}, h("bdi", {}, expression)) : h("span", { class: "dim" }, "always"),
    ),
    veto ? h("p", { class: "callout level-warning" }, icon("hold"), h("span", {}, h("b", {}, "Not allowed yet: "), h("bdi", {}, veto))) : null,
    error ? h("p", { class: "callout level-critical" }, icon("critical"), h("bdi", {}, error)) : null,
    checks.length ? h("ul", { class: "checks" }, checks.map((it) => check(profile, it))) : null,
    remedies.length ? h("p", { class: "remedies" }, h("b", {}, "Passes if "), remedies.map((it, index) => [index ? h("span", { class: "dim" }, ", or if ") : null, h("bdi", {}, it)]), ".") : null,
    triggers.length ? h("p", { class: "dim small" }, "Triggers: ", h("bdi", {}, triggers.join(", ")), ".") : null,
  );
}

function check(profile, { name, type, passed, reason, error, changesAt, info = {} }) {
  const result = VERDICTS[error ? "unknown" : String(passed ?? (reason ? "unknown" : "unasked"))];
  const more = Object.entries(info);
  return h(
    "li",
    { class: "check" },
    h("span", { class: "check-verdict" }, verdict(result.tone, h("span", { class: "unseen" }, result.word), result.mark)),
    h("span", { class: "check-name" }, h("code", {}, h("bdi", {}, name)), " ", h("span", { class: "dim" }, h("bdi", {}, type))),
    h(
      "div",
      { class: "check-why" },
      h("p", {}, error ? h("span", { class: "tone-bad" }, h("bdi", {}, error)) : reason ? h("bdi", {}, reason) : h("span", { class: "dim" }, result.word)),
      changesAt ? h("p", { class: "dim small" }, "May change ", t(changesAt)) : null,
      more.length ? fold(`check ${profile.name} ${name}`, "Check details", {}, h("dl", { class: "facts small" }, more.map(([key, value]) => [h("dt", {}, key), h("dd", { class: "mono" }, shown(value))]))) : null,
    ),
  );
}

function shown(value) {
  return typeof value === "string" ? value : JSON.stringify(value);
}
