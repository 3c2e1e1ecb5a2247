// A time axis: which instants get a line and a label, so that labels neither overlap nor repeat.
//
// Lines stand at round times of UTC or of the reader's own clock, also across a change to summer time: each is made from
// a calendar date, never by adding up hours. Nothing here touches the page.

export const MINUTE = 60_000;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

const STEPS = [
  ...[1, 2, 5, 10, 15, 30].map((count) => ({ unit: "minute", count, length: count * MINUTE })),
  ...[1, 2, 3, 6, 12].map((count) => ({ unit: "hour", count, length: count * HOUR })),
  ...[1, 2].map((count) => ({ unit: "day", count, length: count * DAY })),
  { unit: "week", count: 1, length: 7 * DAY },
  { unit: "month", count: 1, length: 31 * DAY },
];
const MOST = 400; // marks

// The marks of an axis from `start` to `end` (milliseconds) that is `width` pixels wide: small marks, and large ones.
export function axis(start, end, width, { apart = 64, calendar = UTC } = {}) {
  const perPixel = (end - start) / Math.max(width, 1);
  const step = STEPS.find((it) => it.length / perPixel >= apart) ?? STEPS.at(-1);
  const isFine = step.unit === "minute" || step.unit === "hour";
  const { time, day, month, weekday, number } = calendar.words;
  const small = isFine ? time : step.unit === "day" ? weekday : number;
  const large = isFine ? { unit: "day", count: 1 } : { unit: "month", count: 1 };
  const formatter = (words) => (at) => ({ at, text: words.format(at) });
  return {
    small: instants(start, end, step, calendar).map(formatter(small)),
    large: instants(start, end, large, calendar).map(formatter(isFine ? day : month)),
  };
}

// The round instants from the last one that is not after `start`, up to `end`.
export function instants(start, end, { unit, count }, calendar = UTC) {
  const from = calendar.parts(start);
  const found = [];
  for (let index = 0; index < MOST; index += 1) {
    const at = calendar.at(...nth(from, index, unit, count));
    if (at >= end) break;
    if (found.length && at <= start) found.pop();
    if (found.at(-1) !== at) found.push(at);
  }
  return found;
}

function nth([year, month, day, hour, minute], index, unit, count) {
  if (unit === "month") return [year, month + index * count, 1];
  if (unit === "week") return [year, month, day - daysBefore(year, month, day, 7) + 7 * index];
  if (unit === "day") return [year, month, day - daysBefore(year, month, day, count) + index * count];
  if (unit === "hour") return [year, month, day, Math.floor(hour / count) * count + index * count];
  return [year, month, day, hour, Math.floor(minute / count) * count + index * count];
}

// How far a day is from the last round one: the same days are round wherever an axis begins; of weeks it is Monday.
function daysBefore(year, month, day, count) {
  return (Math.floor(Date.UTC(year, month, day) / DAY) + 3) % count;
}

function words(timeZone) {
  const formatter = (options) => new Intl.DateTimeFormat("en-GB", { timeZone, ...options });
  return {
    time: formatter({ hour: "2-digit", minute: "2-digit" }),
    day: formatter({ weekday: "short", day: "numeric", month: "short" }),
    month: formatter({ month: "long", year: "numeric" }),
    weekday: formatter({ weekday: "short", day: "numeric" }),
    number: formatter({ day: "numeric", month: "short" }),
  };
}

export const UTC = {
  name: "UTC",
  words: words("UTC"),
  at: (year, month, day, hour = 0, minute = 0) => Date.UTC(year, month, day, hour, minute),
  parts(at) {
    const it = new Date(at);
    return [it.getUTCFullYear(), it.getUTCMonth(), it.getUTCDate(), it.getUTCHours(), it.getUTCMinutes()];
  },
};

export const LOCAL = {
  name: "local",
  words: words(undefined),
  at: (year, month, day, hour = 0, minute = 0) => new Date(year, month, day, hour, minute).getTime(),
  parts(at) {
    const it = new Date(at);
    return [it.getFullYear(), it.getMonth(), it.getDate(), it.getHours(), it.getMinutes()];
  },
};
