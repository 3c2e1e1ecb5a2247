// The time zone of the timeline: UTC, as on all other pages, or that of the reader. The choice is kept in local storage.

import { LOCAL, UTC } from "./axis.js";

const KEY = "haulout.timeline.zone";

const MINUTES = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
const formatter = (timeZone, options) => {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone, ...options });
  return (at) => format.format(at);
};
// Seconds are shown only if not zero.
const exactly = (timeZone) => {
  const [seconds, minutes] = [formatter(timeZone, { ...MINUTES, second: "2-digit" }), formatter(timeZone, MINUTES)];
  return (at) => (Math.floor(at / 1000) % 60 ? seconds(at) : minutes(at));
};
const utc = exactly("UTC");
const local = exactly(undefined);
const isSame = () => new Date().getTimezoneOffset() === 0;

const ZONES = {
  utc: { name: "utc", calendar: UTC, word: "UTC", full: utc, minutes: formatter("UTC", MINUTES), other: (at) => (isSame() ? "" : local(at)) },
  local: { name: "local", calendar: LOCAL, word: "Local time", full: local, minutes: formatter(undefined, MINUTES), other: utc },
};

export function chosenZone() {
  try {
    return ZONES[localStorage.getItem(KEY)] ?? ZONES.utc;
  } catch {
    return ZONES.utc;
  }
}

export function otherZone(zone) {
  const next = zone.name === "utc" ? ZONES.local : ZONES.utc;
  try {
    localStorage.setItem(KEY, next.name);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  return next;
}
