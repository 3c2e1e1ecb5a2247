// Names, looks and details of the spans of the timeline. A look is a colour, a texture and an icon; the last two are for
// people who cannot see the colour.

import { h, icon } from "./dom.js";
import { duration, ms, nowMs } from "./time.js";

export const KINDS = {
  notice: { word: "Notice", sign: "notices" },
  maintenance: { word: "NodeMaintenance", sign: "in-maintenance" },
  profile: { word: "Profile", sign: "clock" },
  drain: { word: "Drain", sign: "draining" },
  window: { word: "Window", sign: "check" },
  blackout: { word: "Blackout", sign: "cordon" },
};

// Looks by the lower-case prefix of a state: states come from other sources, and new ones may appear.
const LOOKS = {
  notice: [["planned", "faint"], ["due", "strong"], ["active", "solid"], ["cancelled", "void"], ["missed", "bad"], ["", "done"]],
  profile: [["maintenance-required", "faint"], ["in-maintenance", "solid"], ["", "faint"]],
  maintenance: [["fail", "bad"], ["wait", "faint"], ["", "solid"]],
  drain: [["drained", "done"], ["succe", "done"], ["running", "solid"], ["planned", "faint"], ["", "bad"]],
};

export function look(span) {
  const state = (span.state ?? "").toLowerCase();
  if (span.kind === "drain" && !state) return span.to === null ? "solid" : "done";
  return (LOOKS[span.kind] ?? []).find(([start]) => state.startsWith(start))?.[1] ?? "faint";
}

// A span of the API with its times as numbers: `to` is null while the end is unknown.
export function timed(span) {
  return { ...span, from: ms(span.start), to: span.end ? ms(span.end) : null };
}

export function kindWord(span) {
  return KINDS[span.kind]?.word ?? span.kind;
}

// The text of a bar, also in the table.
export function titleOf(span) {
  return span.kind === "drain" ? `Drain, ${span.title}` : span.title;
}

export function isOver(span) {
  return span.to !== null && span.to <= nowMs();
}

// "took 2 h, ended 3 h ago", "for 42 min so far", "begins in 12 min, for 1 h"
export function durationText(span) {
  const now = nowMs();
  const whole = span.to === null ? null : duration((span.to - span.from) / 1000);
  if (span.from > now) return `begins in ${duration((span.from - now) / 1000)}${whole ? `, for ${whole}` : ", duration unknown"}`;
  if (span.to === null) return `for ${duration((now - span.from) / 1000)} so far`;
  if (span.to > now) return `${duration((now - span.from) / 1000)} of ${whole}, ends in ${duration((span.to - now) / 1000)}`;
  return `took ${whole}, ended ${duration((now - span.to) / 1000)} ago`;
}

export function inWords(span, zone) {
  const end = span.to === null ? "no end" : zone.full(span.to);
  return [kindWord(span), span.title, span.state, `${zone.full(span.from)} to ${end}`, durationText(span), span.message].filter(Boolean).join(", ");
}

// The card of a span.
export function spanCard(node, span, zone) {
  const line = (name, ...rest) => h("div", {}, h("dt", {}, name), h("dd", {}, rest));
  const both = (at) => [zone.full(at), h("span", { class: "dim" }, zone.other(at))];
  return h(
    "div",
    { class: "span-card" },
    h("p", { class: "span-card-kind" }, icon(KINDS[span.kind]?.sign ?? "unknown"), kindWord(span), span.state ? h("b", {}, h("bdi", {}, span.state)) : null),
    h("p", { class: "span-card-title" }, h("bdi", {}, span.title || kindWord(span))),
    h(
      "dl",
      {},
      node ? line("Node", h("bdi", {}, node)) : null,
      line("From", both(span.from)),
      line("To", span.to === null ? "unknown" : both(span.to)),
      line("Duration", durationText(span)),
    ),
    span.message ? h("p", { class: "span-card-message" }, h("bdi", {}, span.message)) : null,
  );
}
