// A read-only file: numbered lines, with the findings below their lines.

import { h } from "./dom.js";
import { byLine, findingText, levelOf } from "./findings.js";
import { yamlLine } from "./yaml.js";

export function listing(text, findings, { label, pick }) {
  const wrong = byLine(findings);
  const all = text.replace(/\n$/, "").split("\n");
  const lines = all.map((line, index) => {
    const number = index + 1;
    const found = wrong.get(number);
    return h(
      "li",
      { id: `line-${number}`, class: ["line", found && (found.some((it) => levelOf(it) === "critical") ? "is-wrong" : "is-doubtful")] },
      h("span", { class: "line-number", data: { number }, onclick: () => pick(number), "aria-hidden": "true" }),
      h("code", {}, yamlLine(line), "\n"),
      found?.map((it) => h("p", { class: "line-finding" }, findingText(it))),
    );
  });
  return h("div", { class: "listing", tabindex: "0", role: "region", "aria-label": label }, h("ol", {}, lines));
}

// Highlights a line and scrolls to it.
export function light(element, number) {
  for (const lit of element.querySelectorAll(".is-lit")) lit.classList.remove("is-lit");
  const line = element.querySelector(`#line-${number}`);
  if (!line) return;
  line.classList.add("is-lit");
  line.scrollIntoView({ block: "center" });
}
