// Lines and arrow heads of diagrams.

// A line through all `points`, with round corners.
export function rounded(points, radius = 10) {
  const [first, ...rest] = points;
  let path = `M${first.x},${first.y}`;
  for (const [index, corner] of rest.entries()) {
    const next = rest[index + 1];
    if (!next) {
      path += `L${corner.x},${corner.y}`;
      continue;
    }
    const before = points[index];
    const into = towards(corner, before, radius);
    const out = towards(corner, next, radius);
    path += `L${into.x},${into.y}Q${corner.x},${corner.y} ${out.x},${out.y}`;
  }
  return path;
}

// The head of an arrow whose line ends at `end`, coming from `before`.
export function head(before, end, size = 7) {
  const length = Math.hypot(end.x - before.x, end.y - before.y) || 1;
  const [x, y] = [(end.x - before.x) / length, (end.y - before.y) / length];
  const back = { x: end.x - x * size, y: end.y - y * size };
  const half = size * 0.55;
  return `M${end.x},${end.y}L${back.x - y * half},${back.y + x * half}L${back.x + y * half},${back.y - x * half}Z`;
}

function towards(from, to, distance) {
  const length = Math.hypot(to.x - from.x, to.y - from.y) || 1;
  const part = Math.min(distance, length / 2) / length;
  return { x: from.x + (to.x - from.x) * part, y: from.y + (to.y - from.y) * part };
}
