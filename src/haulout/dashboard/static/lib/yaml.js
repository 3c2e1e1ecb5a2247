// Splits a line of YAML into tokens for highlighting; it does not parse YAML.

import { h } from "./dom.js";

const PIECES = /(?<comment>(?:^|(?<=\s))#.*$)|(?<key>(?<=^|[\s{,-])[\w.$/-]+(?=:(?:\s|$)))|(?<text>"(?:[^"\\]|\\.)*"|'[^']*')|(?<variable>\$\{[^}]*\})|(?<value>(?<=[:\s[{,])(?:true|false|null|-?\d+(?:\.\d+)?[a-z]{0,2})(?=[\s,\]}]|$))/g;

export function yamlLine(text) {
  const pieces = [];
  let done = 0;
  for (const match of text.slice(0, 2000).matchAll(PIECES)) {
    const [kind, piece] = Object.entries(match.groups).find(([, found]) => found !== undefined);
    if (!piece) continue;
    pieces.push(text.slice(done, match.index), h("span", { class: `yaml-${kind}` }, piece));
    done = match.index + piece.length;
  }
  return [...pieces, text.slice(done)];
}
