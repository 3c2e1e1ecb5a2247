// The configuration: the newest file with findings at their lines, the file in force if that is another one, and an editor
// to preview an edit. The operator checks the edit against the current nodes and stores nothing of it.
//
// The address has `tab` (`good`, `try`) and `line`.

import { h, icon, replace, setText } from "../lib/dom.js";
import { differing } from "../lib/diff.js";
import { Editor } from "../lib/editor.js";
import { counted, findingList, levelOf } from "../lib/findings.js";
import { light, listing } from "../lib/file_view.js";
import { button, card, copyButton, empty, failure, loading, nodeLink, pageHead, segments, choose } from "../lib/components.js";
import { fold } from "../lib/sections.js";

const AGAIN = 30_000; // milliseconds between requests for the file: there is no event for it
const PAUSE = 400; // milliseconds after the last keystroke
const PART = /^(check|trigger|notification)\b.*?: /; // a line about an instance
const FEW = 12; // nodes named before folding

let draft = null; // the typed text, kept when the page is left

export function mount(root, context) {
  const { api, go } = context;
  let file = null;
  let problem = null;
  let request = null;
  let shown = "";
  let warned = ""; // the banners at the last request: a change may mean another file

  const banners = () => JSON.stringify(context.store.summary?.banners ?? []);
  const setParameters = (parameters, options = { replace: true }) => go({ parameters: { ...context.route.parameters, ...parameters } }, options);
  const tools = h("div", { class: "row" });
  const content = h("div", { class: "conf" });
  replace(root, pageHead("Configuration", tools), content);
  replace(content, loading("the configuration"));
  const trial = tryOut(context, () => file);
  const keys = [context.keys.on("n", "Next finding", () => jump(1)), context.keys.on("p", "Previous finding", () => jump(-1)), context.keys.on("e", "Preview", () => setParameters({ tab: "try", line: "" }, {}))];
  const again = setInterval(() => document.hidden || load(), AGAIN);
  load();

  async function load() {
    warned = banners();
    request?.abort();
    const mine = (request = new AbortController());
    try {
      const answer = await api.get("configuration", {}, { signal: mine.signal });
      if (mine !== request) return;
      [file, problem] = [answer, null];
    } catch (error) {
      if (mine !== request || error.name === "AbortError") return;
      problem = error;
    }
    show();
  }

  const isBroken = () => file.isInForce === false;
  const tab = () => {
    const wanted = context.route.parameters.tab;
    return wanted === "try" || (wanted === "good" && isBroken()) ? wanted : "file";
  };

  function show() {
    if (!file) return void (problem && replace(content, failure(problem, load)));
    const serialized = JSON.stringify([file, tab()]);
    if (serialized !== shown) draw();
    shown = serialized;
    const line = Number(context.route.parameters.line);
    if (line && tab() !== "try") light(content, line);
  }

  function draw() {
    const tabs = [{ value: "file", text: isBroken() ? "Newest file" : "The file", mark: isBroken() ? "critical" : "configuration" }, ...(isBroken() ? [{ value: "good", text: "In force", mark: "check" }] : []), { value: "try", text: "Preview", mark: "unknown" }];
    const chooser = segments("Which", tabs, tab(), (value) => setParameters({ tab: value === "file" ? "" : value, line: "" }, {}));
    choose(chooser, tab());
    replace(tools, chooser);
    replace(content, state(), tab() === "try" ? trial.element : reading(tab()));
    if (tab() === "try") trial.begin();
  }

  function state() {
    const errors = (file.findings ?? []).filter((it) => levelOf(it) === "critical");
    if (isBroken())
      return h(
        "p",
        { class: "callout level-critical", role: "status" },
        icon("critical"),
        h("span", {}, h("b", {}, "The newest file cannot be used"), `: ${counted(errors) || "no reason is known"}. `, holding()),
      );
    if (file.isDefault) return h("p", { class: "callout level-info" }, icon("info"), h("span", {}, h("b", {}, "There is no configuration file"), ": the default configuration of Haulout is in force. It acts only on notices."));
    const warnings = file.findings ?? [];
    return warnings.length ? h("p", { class: "callout level-warning" }, icon("warning"), h("span", {}, h("b", {}, "In force"), `, with ${counted(warnings)}.`)) : h("p", { class: "callout is-fine" }, icon("check"), h("span", {}, h("b", {}, "In force"), ": no problems found."));
  }

  function holding() {
    if (file.isDefault) return "No valid file was loaded yet: the default configuration of Haulout is in force until this is fixed.";
    return "The last valid file stays in force until this is fixed.";
  }

  function reading(which) {
    const text = which === "good" ? file.inForce : file.text;
    const findings = which === "good" ? [] : (file.findings ?? []);
    const name = which === "good" ? "The last valid file" : file.path || "maintenance.yaml";
    const steps = findings.some((it) => it.line)
      ? h("span", { class: "row conf-steps" }, button("", () => jump(-1), { mark: "up", kind: "quiet", title: "Previous finding (p)", "aria-label": "Previous finding" }), button("", () => jump(1), { mark: "down", kind: "quiet", title: "Next finding (n)", "aria-label": "Next finding" }))
      : null;
    return h(
      "div",
      { class: "conf-grid" },
      card(name, { className: "conf-file", tools: h("span", { class: "row conf-tools" }, steps, copyButton(text ?? "", "Copy the file"), button("Try an edit", () => setParameters({ tab: "try", line: "" }, {}))) }, text ? listing(text, findings, { label: name, pick: (line) => setParameters({ line: String(line) }) }) : empty("The file is empty", "")),
      h("div", { class: "conf-side" }, findings.length ? card("Findings", { note: counted(findings) }, findingList(findings, (line) => setParameters({ line: String(line) }))) : null, profileTexts(file.profiles ?? [], which === "file" && isBroken() ? "of the file in force" : "")),
    );
  }

  function jump(by) {
    if (!file || tab() === "good") return;
    if (tab() === "try") return void trial.jump(by);
    const line = findingAfter(file.findings ?? [], Number(context.route.parameters.line), by);
    if (line) setParameters({ line: String(line) });
  }

  return {
    update(kind) {
      if (kind === "route") show();
      else if (kind === "fleet" || (kind === "summary" && banners() !== warned)) load();
    },
    unmount() {
      clearInterval(again);
      request?.abort();
      request = null;
      trial.end();
      for (const remove of keys) remove();
    },
  };
}

function profileTexts(profiles, note = "") {
  if (!profiles.length) return null;
  return card("Explanation", { note }, profiles.map((it) => fold(`words ${it.name}`, `Profile ${it.name}`, { isOpen: profiles.length < 4 }, profileText(it))));
}

// Lines are indented by what they belong to: states, and the sentences about each. The sentences about its parts follow.
function profileText({ name, text }) {
  const lines = text.filter((line) => line.trim() !== `profile ${name}`);
  const parts = lines.filter((line) => PART.test(line));
  const flow = lines.filter((line) => !PART.test(line));
  const depth = (line) => line.length - line.trimStart().length;
  const least = Math.min(...flow.map(depth));
  const hasStates = flow.some((line) => depth(line) > least);
  return [
    h("div", { class: "conf-words" }, flow.map((line) => h("p", { class: hasStates && depth(line) === least ? "is-state" : "is-in" }, h("bdi", {}, line.trim())))),
    parts.length ? fold(`parts ${name}`, "Its checks, triggers and notifications", { note: String(parts.length) }, h("ul", { class: "conf-parts" }, parts.map((line) => h("li", {}, h("bdi", {}, line))))) : null,
  ];
}

// Preview of an edit

function tryOut({ api }, current) {
  let timer = 0;
  let request = null;
  let findings = [];
  let at = 0; // the last line jumped to
  const editor = new Editor("Edit to preview", { changed: typed });
  const status = h("p", { class: "try-status", role: "status" });
  const results = h("div", { class: "conf-side" });
  const differs = h("span", { class: "note" });
  const reset = button("Reset to the current file", () => begin(true), { mark: "refresh" });
  const element = h(
    "div",
    { class: "conf-grid" },
    card("Edit to preview", { className: "conf-file", tools: h("span", { class: "row conf-tools" }, differs, reset) }, editor.element, h("p", { class: "body dim small" }, "Paste or type. The edit is checked against the current state of the nodes. Nothing is saved, and nothing is applied.")),
    h("div", { class: "conf-side" }, status, results),
  );

  function begin(isAnew = false) {
    if (isAnew || draft === null) draft = current().text ?? "";
    if (editor.text !== draft || isAnew) editor.text = draft;
    typed(draft, 0);
  }

  function typed(text, pause = PAUSE) {
    draft = text;
    const { lines, gone } = differing(current().text ?? "", text);
    setText(differs, difference(lines.size, gone));
    reset.disabled = !lines.size && !gone;
    editor.mark({ findings, changed: lines });
    clearTimeout(timer);
    timer = setTimeout(check, pause);
  }

  async function check() {
    request?.abort();
    const mine = (request = new AbortController());
    say("clock", "dim", "Checking …");
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await api.post("configuration/check", { text: draft }, { signal: mine.signal });
      if (mine === request) show(answer);
    } catch (error) {
      if (mine !== request || error.name === "AbortError") return;
      say("critical", "bad", `The check failed: ${error.message}`);
    }
    element.removeAttribute("aria-busy");
  }

  function say(mark, tone, text) {
    replace(status, h("span", { class: ["verdict", `tone-${tone}`] }, icon(mark), h("b", {}, text)));
  }

  function show({ isValid, findings: found = [], changes = [], evaluatedNodes = 0, profiles = [] }) {
    findings = found;
    at = 0;
    editor.mark({ findings, changed: differing(current().text ?? "", draft).lines });
    const nodes = `${evaluatedNodes} ${evaluatedNodes === 1 ? "node was" : "nodes were"} evaluated`;
    if (!isValid) say("critical", "bad", `Invalid: ${counted(found) || "no reason is known"}.`);
    else if (changes.length) say("check", "good", `Valid. ${nodes}; this would change:`);
    else say("check", "good", `Valid. ${nodes}; nothing would change.`);
    const list = found.length ? card("Findings", { note: counted(found) }, findingList(found, (line) => editor.jump(line))) : null;
    const isGrave = found.some((it) => levelOf(it) !== "info");
    replace(
      results,
      isGrave ? list : null,
      listed("For nodes", changes.filter((it) => it.count || it.nodes?.length)),
      listed("In the file", changes.filter((it) => !it.count && !it.nodes?.length)),
      isGrave ? null : list,
      profileTexts(profiles),
    );
  }

  function jump(by) {
    at = findingAfter(findings, at, by) ?? 0;
    if (at) editor.jump(at);
  }

  return {
    element,
    begin,
    jump,
    end() {
      clearTimeout(timer);
      request?.abort();
      request = null;
    },
  };
}

function difference(added, gone) {
  const changed = Math.min(added, gone);
  const parts = [[changed, "changed"], [added - changed, "added"], [gone - changed, "removed"]].filter(([count]) => count);
  return parts.map(([count, word], index) => `${count} ${index ? "" : count === 1 ? "line " : "lines "}${word}`).join(", ") || "no changes";
}

// The line of the next finding after a line, or of the one before it; wraps around.
function findingAfter(findings, from, by) {
  const lines = [...new Set(findings.map((it) => it.line).filter(Boolean))].sort((a, b) => a - b);
  if (by > 0) return lines.find((it) => it > (from || 0)) ?? lines[0];
  return lines.findLast((it) => it < (from || 0)) ?? lines.at(-1);
}

function listed(title, changes) {
  return changes.length ? card(title, {}, h("ul", { class: "body changes" }, changes.map(change))) : null;
}

function change({ text, profile, nodes = [], count = 0 }) {
  const few = nodes.slice(0, FEW);
  const list = h("p", { class: "change-nodes" }, few.map(nodeLink));
  const more = nodes.slice(FEW);
  const unnamed = count - nodes.length;
  const rest = [more.length ? fold(`change ${profile} ${text}`, `${more.length} more`, {}, h("p", { class: "change-nodes" }, more.map(nodeLink))) : null, unnamed > 0 ? h("p", { class: "dim small" }, `and ${unnamed} more`) : null];
  return h(
    "li",
    {},
    count ? h("p", { class: "dim small" }, `${count} ${count === 1 ? "node" : "nodes"}`, profile ? [" of profile ", h("bdi", {}, profile)] : null) : null,
    h("p", {}, h("bdi", {}, text)),
    few.length ? list : null,
    rest,
  );
}
