// Details of a notice, on all pages that show it.

import { h } from "./dom.js";
import { historyTable } from "./history_list.js";
import { verdict } from "./components.js";
import { duration, full, t } from "./time.js";

const TIMELY = {
  true: { tone: "good", word: "In time" },
  false: { tone: "bad", word: "Too late" },
  unknown: { tone: "dim", word: "Unknown" },
};

// Whether the drain finishes before the maintenance starts, and why.
export function onTimeMark({ isOnTime, onTimeMessage }) {
  if (isOnTime === undefined && !onTimeMessage) return null;
  const { tone, word } = TIMELY[String(isOnTime ?? "unknown")];
  return h("p", { class: "on-time" }, verdict(tone, word), onTimeMessage ? h("span", { class: "dim" }, h("bdi", {}, onTimeMessage)) : null);
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
      fact("Starts", time(notice.start)),
      fact("Ends", time(notice.end)),
      fact("Latest start", time(notice.deadline)),
      fact("Drain starts", time(notice.drainAt)),
      fact("Expected drain time", notice.predictedDrainSeconds ? `about ${duration(notice.predictedDrainSeconds)}, based on previous drains` : ""),
      fact("Rescheduled", text(notice.rescheduled) || (notice.reschedulable ? "no; the source can reschedule it" : "")),
      fact("Source", text([notice.source, notice.id].filter(Boolean).join(", "))),
      fact("Object", h("code", {}, `mn/${notice.name}`)),
    ),
    notice.history?.length ? historyTable(`History of ${notice.name}`, notice.history) : null,
  );
}
