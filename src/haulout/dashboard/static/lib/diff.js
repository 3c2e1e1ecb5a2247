// Which lines of a text are not in another one. Pure.

const MOST = 1_000_000; // comparisons; beyond that everything between what both begin and end with counts as changed

// The numbers, from 1, of lines of `after` that are new or other than in `before`, and how many of `before` are gone.
export function differing(before, after) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let start = 0;
  while (start < old.length && start < now.length && old[start] === now[start]) start += 1;
  let end = 0;
  while (end < old.length - start && end < now.length - start && old.at(-1 - end) === now.at(-1 - end)) end += 1;
  const [removed, added] = [old.slice(start, old.length - end), now.slice(start, now.length - end)];
  const kept = removed.length * added.length > MOST ? new Set() : common(removed, added);
  return { lines: new Set(added.map((_, index) => index).filter((it) => !kept.has(it)).map((it) => start + it + 1)), gone: removed.length - kept.size };
}

// The indices of lines of `b` in a longest common subsequence.
function common(a, b) {
  const length = Array.from({ length: a.length + 1 }, () => new Uint32Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1) length[i][j] = a[i] === b[j] ? length[i + 1][j + 1] + 1 : Math.max(length[i + 1][j], length[i][j + 1]);
  const kept = new Set();
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) {
      kept.add(j);
      i += 1;
      j += 1;
    } else if (length[i + 1][j] >= length[i][j + 1]) i += 1;
    else j += 1;
  }
  return kept;
}
