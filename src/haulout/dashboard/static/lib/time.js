// Times as text. All are UTC, as in kubectl and in logs; the tooltip has the full time, also in the zone of the
// reader. "Now" is the operator's clock, which in a sandbox may run faster than ours.

import { h, setText } from "./dom.js";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

let now = () => Date.now();

export function setNow(clock) {
  now = clock;
}

export function nowMs() {
  return now();
}

export function ms(time) {
  return typeof time === "number" ? time : time instanceof Date ? time.getTime() : Date.parse(time);
}

// 42 -> "42 s", 3700 -> "1 h 1 min": two units at most, and only while the second one matters.
export function duration(seconds) {
  const whole = Math.round(Math.abs(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return two(whole, MINUTE, "min", 1, "s", 3);
  if (whole < DAY) return two(whole, HOUR, "h", MINUTE, "min", 10);
  return two(whole, DAY, "d", HOUR, "h", 7);
}

export function relative(time) {
  const seconds = (ms(time) - now()) / 1000;
  if (Number.isNaN(seconds)) return "";
  if (Math.abs(seconds) < 1.5) return "now";
  return seconds < 0 ? `${duration(seconds)} ago` : `in ${duration(seconds)}`;
}

// The age without "ago", for columns whose title says it.
export function age(time) {
  return duration(Math.max(0, now() - ms(time)) / 1000);
}

export function clock(time, { seconds = true } = {}) {
  return new Date(ms(time)).toISOString().slice(11, seconds ? 19 : 16);
}

export function date(time) {
  return new Date(ms(time)).toISOString().slice(0, 10);
}

// "14:05" today, "17 Nov 14:05" otherwise.
export function short(time) {
  const at = new Date(ms(time));
  const hours = clock(at, { seconds: false });
  if (date(at) === date(now())) return hours;
  return `${at.getUTCDate()} ${at.toLocaleString("en", { month: "short", timeZone: "UTC" })} ${hours}`;
}

export function full(time) {
  const at = new Date(ms(time));
  const there = `${date(at)} ${clock(at)} UTC`;
  if (at.getTimezoneOffset() === 0) return there;
  return `${there} (${at.toLocaleString(undefined, { timeZoneName: "short" })})`;
}

// An element that updates itself: "3 min ago", with the full time as tooltip.
export function t(time, { words = relative, className = "" } = {}) {
  if (!time || Number.isNaN(ms(time))) return null;
  const element = h("time", { class: className || null, datetime: new Date(ms(time)).toISOString(), title: full(time) }, words(time));
  alive.add(new WeakRef(element));
  relativeTimes.set(element, { time, words });
  return element;
}

const alive = new Set();
const relativeTimes = new WeakMap();

// Called each second by the shell. Removed elements are dropped; hidden ones are skipped.
export function tick() {
  for (const reference of alive) {
    const element = reference.deref();
    if (!element) {
      alive.delete(reference);
      continue;
    }
    if (!element.isConnected) continue;
    const { time, words } = relativeTimes.get(element);
    setText(element, words(time));
  }
}

function two(whole, unit, name, smaller, smallerName, until) {
  const first = Math.floor(whole / unit);
  const rest = Math.floor((whole % unit) / smaller);
  return first < until && rest ? `${first} ${name} ${rest} ${smallerName}` : `${first} ${name}`;
}
