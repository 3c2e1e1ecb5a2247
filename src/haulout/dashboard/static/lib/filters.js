// Filters nodes by the URL parameters. Pure. `state` may name several, separated by commas. `q` is words,
// all of which must be somewhere: in the name, zone, pool, labels, the reason, a profile or its state, a hold.

import { STATES } from "./components.js";

export const GROUPS = { zone: "Zone", pool: "Pool", state: "State", profile: "Profile", none: "None" };

const order = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
const haystacks = new WeakMap(); // by tile; tiles are immutable

export function filtersOf({ state = "", zone = "", pool = "", profile = "", q = "" }) {
  return { states: new Set(state.split(",").filter(Boolean)), zone, pool, profile, words: q.toLowerCase().split(/\s+/).filter(Boolean) };
}

export function isNarrowed({ states, zone, pool, profile, words }) {
  return states.size > 0 || Boolean(zone || pool || profile) || words.length > 0;
}

export function matches(tile, filters) {
  return (filters.states.size === 0 || filters.states.has(tile.state)) && matchesButState(tile, filters);
}

export function matchesButState(tile, { zone, pool, profile, words }) {
  if (zone && tile.zone !== zone) return false;
  if (pool && tile.pool !== pool) return false;
  if (profile && !Object.hasOwn(tile.profiles ?? {}, profile)) return false;
  if (words.length === 0) return true;
  const text = haystack(tile);
  return words.every((word) => text.includes(word));
}

// The group titles of a node.
export function groupOf(tile, by) {
  if (by === "zone") return tile.zone || "No zone";
  if (by === "pool") return tile.pool || "No pool";
  if (by === "state") return tile.state;
  if (by === "profile") return Object.keys(tile.profiles ?? {}).sort(order.compare).join(", ") || "No profile";
  return "All nodes";
}

export function byGroup(by) {
  if (by === "state") return (one, other) => STATES.indexOf(one) - STATES.indexOf(other);
  return order.compare;
}

export function byName(one, other) {
  return order.compare(one, other) || (one < other ? -1 : one > other ? 1 : 0);
}

function haystack(tile) {
  let text = haystacks.get(tile);
  if (text === undefined) {
    const pairs = [...Object.entries(tile.labels ?? {}), ...Object.entries(tile.profiles ?? {})].map(([key, value]) => `${key}=${value}`);
    text = [tile.name, tile.zone, tile.pool, tile.message, tile.maintenance, tile.hold, tile.isCordoned ? "cordoned" : "", tile.isReady === false ? "not ready" : "", ...pairs].join("\n").toLowerCase();
    haystacks.set(tile, text);
  }
  return text;
}
