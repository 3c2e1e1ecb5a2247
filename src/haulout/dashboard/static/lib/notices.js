// What is told about a notice, wherever it is shown.

import { h } from "./dom.js";
import { happenings } from "./happenings.js";
import { verdict } from "./parts.js";
import { duration, full, t } from "./time.js";

const TIMELY = {
  true: { tone: "good", word: "In time" },
  false: { tone: "bad", word: "Too late" },
  unknown: { tone: "dim", word: "Nobody can tell" },
};

// Whether the node will be empty when it begins, and why, in words.
export function onTimeMark({ isOnTime, onTime }) {
  if (isOnTime === undefined && !onTime) return null;
  const { tone, word } = TIMELY[String(isOnTime ?? "unknown")];
  return h("p", { class: "on-time" }, verdict(tone, word), onTime ? h("span", { class: "dim" }, h("bdi", {}, onTime)) : null);
}

export function noticeFacts(notice) {
  const fact = (word, value) => (value ? [h("dt", {}, word), h("dd", {}, value)] : null);
  const time = (at) => (at ? [full(at), " · ", t(at)] : "");
  const text = (value) => (value ? h("bdi", {}, value) : "");
  return h(
    "div",
    { class: "notice-facts" },
    notice.description ? h("p", {}, text(notice.description)) : null,
    h(
      "dl",
      { class: "facts small" },
      fact("Begins", time(notice.start)),
      fact("Is over", time(notice.end)),
      fact("Begins at the latest", time(notice.deadline)),
      fact("Emptied from", time(notice.drainAt)),
      fact("Emptying takes", notice.predictedDrainSeconds ? `about ${duration(notice.predictedDrainSeconds)}, as the history tells` : ""),
      fact("Moved", text(notice.rescheduled) || (notice.reschedulable ? "no; its source can move it" : "")),
      fact("Source", text([notice.source, notice.id].filter(Boolean).join(", "))),
      fact("Object", h("code", {}, `mn/${notice.name}`)),
    ),
    notice.history?.length ? happenings(`History of ${notice.name}`, notice.history) : null,
  );
}
