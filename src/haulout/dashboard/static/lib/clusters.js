// Filtering and grouping of clusters by the URL parameters. Pure.
//
// Activity and reachability are independent, so a cluster has any number of marks. The parameter `state` lists marks,
// separated by commas; a cluster matches if it has one of them.

import { byName } from "./filters.js";

// Most important first.
export const MARKS = ["unreachable", "unreadable", "in-maintenance", "waiting", "connecting", "deleting", "idle"];
export const MARK_WORDS = {
  unreachable: "Unreachable",
  unreadable: "Unreadable",
  "in-maintenance": "In maintenance",
  waiting: "Waiting",
  connecting: "Connecting",
  deleting: "Being deleted",
  idle: "Idle",
};

const haystacks = new WeakMap(); // by tile; tiles are immutable

export function marksOf({ connection, state, isDeleting }) {
  const marks = MARKS.filter((mark) => mark === state || mark === connection || (mark === "deleting" && isDeleting));
  return marks.length > 1 ? marks.filter((mark) => mark !== "idle") : marks;
}

export function isUnreachable({ connection }) {
  return connection === "unreachable" || connection === "unreadable";
}

export function namespaceOf({ key }) {
  return key.slice(0, key.indexOf("/"));
}

export function nameOf({ key }) {
  return key.slice(key.indexOf("/") + 1);
}

export function filtersOf({ state = "", namespace = "", q = "" }) {
  return { marks: new Set(state.split(",").filter(Boolean)), namespace, words: q.toLowerCase().split(/\s+/).filter(Boolean) };
}

export function matches(tile, filters) {
  return (filters.marks.size === 0 || marksOf(tile).some((mark) => filters.marks.has(mark))) && matchesButMark(tile, filters);
}

export function matchesButMark(tile, { namespace, words }) {
  if (namespace && namespaceOf(tile) !== namespace) return false;
  if (words.length === 0) return true;
  const text = haystack(tile);
  return words.every((word) => text.includes(word));
}

// [[title, tiles]], by namespace. If most namespaces have one cluster, groups are useless:
// then there is one group, without a title.
export function grouped(tiles, isSplit) {
  const sorted = [...tiles].sort((one, other) => byName(one.key, other.key));
  if (!isSplit) return sorted.length ? [["", sorted]] : [];
  const groups = new Map();
  for (const tile of sorted) {
    const namespace = namespaceOf(tile);
    if (!groups.has(namespace)) groups.set(namespace, []);
    groups.get(namespace).push(tile);
  }
  return [...groups];
}

export function isWorthSplitting(tiles) {
  return new Set(tiles.map(namespaceOf)).size * 2 <= tiles.length;
}

function haystack(tile) {
  let text = haystacks.get(tile);
  if (text === undefined) {
    const machines = (tile.active ?? []).flatMap(({ name, node, message, request }) => [name, node, message, request]);
    text = [tile.key, tile.message, tile.waitingFor, tile.server, tile.version, ...(tile.budgets ?? []), ...machines].join("\n").toLowerCase();
    haystacks.set(tile, text);
  }
  return text;
}
