// The visible range of time, how it moves, and its form in the URL. Pure: nothing here touches the page.
//
// A view is {length, at}: how much of time it shows in milliseconds, and what is in its middle. Without `at` it follows
// now, which is then a third from the left, as most people look for what comes next.

import { DAY, HOUR, MINUTE } from "./axis.js";

export const PRESETS = { "6h": 6 * HOUR, "1d": DAY, "1w": 7 * DAY, "1mo": 30 * DAY };
const SHORTEST = 10 * MINUTE;
const LONGEST = 120 * DAY; // three times as much is asked for, and the API answers for 400 days
const BEFORE_NOW = 1 / 3;
const UNITS = { m: MINUTE, h: HOUR, d: DAY };

export function fromParameters({ span = "", at = "" }) {
  const middle = Date.parse(at);
  return { length: lengthOf(span) ?? PRESETS["1d"], at: Number.isNaN(middle) ? null : middle };
}

export function toParameters({ length, at }) {
  const span = Object.keys(PRESETS).find((name) => PRESETS[name] === length) ?? `${Math.round(length / MINUTE)}m`;
  return { span: span === "1d" ? "" : span, at: at === null ? "" : `${new Date(at).toISOString().slice(0, 16)}Z` };
}

export function range({ length, at }, now) {
  const start = at === null ? now - length * BEFORE_NOW : at - length / 2;
  return { start, end: start + length };
}

// By `factor` closer (below 1) or farther, so that what is at `share` of the width stays where it is.
export function zoomed(view, factor, share, now) {
  const { start, end } = range(view, now);
  const length = Math.min(LONGEST, Math.max(SHORTEST, Math.round((end - start) * factor)));
  if (view.at === null && share === null) return { length, at: null };
  const fixed = start + (end - start) * (share ?? 0.5);
  return { length, at: fixed - length * (share ?? 0.5) + length / 2 };
}

export function panned(view, milliseconds, now) {
  const { start, end } = range(view, now);
  return { length: view.length, at: (start + end) / 2 + milliseconds };
}

function lengthOf(text) {
  if (PRESETS[text]) return PRESETS[text];
  const [, count, unit] = /^(\d{1,6})([mhd])$/.exec(text) ?? [];
  return count ? Math.min(LONGEST, Math.max(SHORTEST, count * UNITS[unit])) : null;
}
