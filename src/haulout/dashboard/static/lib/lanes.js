// Assigns the spans of a row to lanes: none covers another, and each kind keeps its position.
//
// Spans of one kind share lanes; the kinds follow each other in the order in which things happen to a node.

const ORDER = ["notice", "maintenance", "profile", "drain"];

// The spans of a row that are drawn as bars, each with its lane, and how many lanes that makes.
export function lanes(spans, { horizon }) {
  const placed = [];
  let first = 0;
  for (const kind of ORDER) {
    const ends = [];
    for (const span of spans.filter((it) => it.kind === kind).sort((a, b) => a.from - b.from)) {
      const free = ends.findIndex((end) => end <= span.from);
      const lane = free < 0 ? ends.length : free;
      ends[lane] = span.to ?? horizon;
      placed.push({ span, lane: first + lane });
    }
    first += ends.length;
  }
  return { placed, count: Math.max(first, 1) };
}
