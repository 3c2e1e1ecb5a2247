// In whose time a timeline is told: UTC, as all other pages do, or that of the reader. What is chosen is kept by the browser.

import { LOCAL, UTC } from "./axis.js";

const KEY = "haulout.timeline.zone";

const MINUTES = { weekday: "short", day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", timeZoneName: "short" };
const said = (timeZone, options) => {
  const format = new Intl.DateTimeFormat("en-GB", { timeZone, ...options });
  return (at) => format.format(at);
};
// Seconds are told where there are any.
const exactly = (timeZone) => {
  const [seconds, minutes] = [said(timeZone, { ...MINUTES, second: "2-digit" }), said(timeZone, MINUTES)];
  return (at) => (Math.floor(at / 1000) % 60 ? seconds(at) : minutes(at));
};
const utc = exactly("UTC");
const local = exactly(undefined);
const isSame = () => new Date().getTimezoneOffset() === 0;

const ZONES = {
  utc: { name: "utc", calendar: UTC, word: "UTC", full: utc, minutes: said("UTC", MINUTES), other: (at) => (isSame() ? "" : local(at)) },
  local: { name: "local", calendar: LOCAL, word: "Local time", full: local, minutes: said(undefined, MINUTES), other: utc },
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
    // It holds until the page is left.
  }
  return next;
}
