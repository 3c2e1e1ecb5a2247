// Findings about a file: a list whose entries link to their lines.

import { h, icon } from "./dom.js";
import { LEVEL_ICONS } from "./components.js";

const WORDS = { critical: "Error", warning: "Warning", info: "Note" };

export const levelOf = (finding) => finding.level ?? "critical";

// "2 errors, 1 warning"
export function counted(findings) {
  const words = { critical: ["error", "errors"], warning: ["warning", "warnings"], info: ["note", "notes"] };
  return Object.entries(words)
    .map(([level, [one, many]]) => [findings.filter((it) => levelOf(it) === level).length, one, many])
    .filter(([count]) => count)
    .map(([count, one, many]) => `${count} ${count === 1 ? one : many}`)
    .join(", ");
}

export function findingText(finding) {
  return h("span", { class: ["finding", `finding-${levelOf(finding)}`] }, icon(LEVEL_ICONS[levelOf(finding)] ?? "info", WORDS[levelOf(finding)]), h("span", {}, finding.key ? [h("code", {}, h("bdi", {}, finding.key)), ": "] : null, h("bdi", {}, finding.message)));
}

// `jump(line)` is called with the line of the one that was chosen.
export function findingList(findings, jump) {
  return h(
    "ol",
    { class: "findings" },
    findings.map((it) => h("li", {}, findingText(it), it.line ? h("button", { type: "button", class: "button quiet finding-line", onclick: () => jump(it.line) }, `line ${it.line}`) : null)),
  );
}

export function byLine(findings) {
  const found = new Map();
  for (const it of findings) if (it.line) found.set(it.line, [...(found.get(it.line) ?? []), it]);
  return found;
}
