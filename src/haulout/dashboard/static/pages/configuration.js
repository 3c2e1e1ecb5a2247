// The configuration: the file as it is with what is wrong at its lines, the one that holds if that is another, and a field to
// try an edit. What is tried is judged by the operator against the nodes as they are; nothing of it is ever kept there.
//
// The address has `tab` (`good`, `try`) and `line`.

import { h, icon, replace, setText } from "../lib/dom.js";
import { differing } from "../lib/differing.js";
import { Editor } from "../lib/editor.js";
import { counted, findingList, levelOf } from "../lib/findings.js";
import { light, listing } from "../lib/listing.js";
import { button, card, copyButton, empty, failure, loading, nodeLink, pageHead, segments, choose } from "../lib/parts.js";
import { fold } from "../lib/sections.js";

const AGAIN = 30_000; // milliseconds after which the file is asked for again: there is no event for it
const PAUSE = 400; // milliseconds after the last letter
const PART = /^(check|trigger|notification)\b.*?: /; // a line about an instance
const FEW = 12; // nodes that are named at first

let draft = null; // what was typed, for whoever leaves the page and comes back

export function mount(root, context) {
  const { api, go } = context;
  let file = null;
  let problem = null;
  let asked = null;
  let shown = "";
  let warned = ""; // what banners said when it was asked for: another one may mean another file

  const banners = () => JSON.stringify(context.store.summary?.banners ?? []);
  const tell = (parameters, options = { replace: true }) => go({ parameters: { ...context.route.parameters, ...parameters } }, options);
  const tools = h("div", { class: "row" });
  const content = h("div", { class: "conf" });
  replace(root, pageHead("Configuration", tools), content);
  replace(content, loading("the configuration"));
  const trial = tryOut(context, () => file);
  const keys = [context.keys.on("n", "Next finding", () => jump(1)), context.keys.on("p", "Finding before", () => jump(-1)), context.keys.on("e", "What if", () => tell({ tab: "try", line: "" }, {}))];
  const again = setInterval(() => document.hidden || load(), AGAIN);
  load();

  async function load() {
    warned = banners();
    asked?.abort();
    const mine = (asked = new AbortController());
    try {
      const answer = await api.get("configuration", {}, { signal: mine.signal });
      if (mine !== asked) return;
      [file, problem] = [answer, null];
    } catch (error) {
      if (mine !== asked || error.name === "AbortError") return;
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
    const said = JSON.stringify([file, tab()]);
    if (said !== shown) draw();
    shown = said;
    const line = Number(context.route.parameters.line);
    if (line && tab() !== "try") light(content, line);
  }

  function draw() {
    const tabs = [{ value: "file", text: isBroken() ? "Newest file" : "The file", mark: isBroken() ? "critical" : "configuration" }, ...(isBroken() ? [{ value: "good", text: "In force", mark: "check" }] : []), { value: "try", text: "What if", mark: "unknown" }];
    const chooser = segments("Which", tabs, tab(), (value) => tell({ tab: value === "file" ? "" : value, line: "" }, {}));
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
        h("span", {}, h("b", {}, "The newest file cannot be used"), `: ${counted(errors) || "nobody can tell why"}. `, holding()),
      );
    if (file.isDefault) return h("p", { class: "callout level-info" }, icon("info"), h("span", {}, h("b", {}, "There is no file"), ": what ships with Haulout is in force. It acts on notices, and on nothing else."));
    const warnings = file.findings ?? [];
    return warnings.length ? h("p", { class: "callout level-warning" }, icon("warning"), h("span", {}, h("b", {}, "In force"), `, with ${counted(warnings)}.`)) : h("p", { class: "callout is-fine" }, icon("check"), h("span", {}, h("b", {}, "In force"), ": nothing is wrong with it."));
  }

  function holding() {
    if (file.isDefault) return "There never was a good one: what ships with Haulout is in force until this is mended.";
    return "The last good one stays in force until this is mended.";
  }

  function reading(which) {
    const text = which === "good" ? file.inForce : file.text;
    const findings = which === "good" ? [] : (file.findings ?? []);
    const name = which === "good" ? "The last good one" : file.path || "maintenance.yaml";
    const steps = findings.some((it) => it.line)
      ? h("span", { class: "row conf-steps" }, button("", () => jump(-1), { mark: "up", kind: "quiet", title: "Finding before (p)", "aria-label": "Finding before" }), button("", () => jump(1), { mark: "down", kind: "quiet", title: "Next finding (n)", "aria-label": "Next finding" }))
      : null;
    return h(
      "div",
      { class: "conf-grid" },
      card(name, { className: "conf-file", tools: h("span", { class: "row conf-tools" }, steps, copyButton(text ?? "", "Copy the file"), button("Try an edit", () => tell({ tab: "try", line: "" }, {}))) }, text ? listing(text, findings, { label: name, pick: (line) => tell({ line: String(line) }) }) : empty("It is empty", "")),
      h("div", { class: "conf-side" }, findings.length ? card("Findings", { note: counted(findings) }, findingList(findings, (line) => tell({ line: String(line) }))) : null, profileTexts(file.profiles ?? [], which === "file" && isBroken() ? "of the one that is in force" : "")),
    );
  }

  function jump(by) {
    if (!file || tab() === "good") return;
    if (tab() === "try") return void trial.jump(by);
    const line = stepped(file.findings ?? [], Number(context.route.parameters.line), by);
    if (line) tell({ line: String(line) });
  }

  return {
    update(kind) {
      if (kind === "route") show();
      else if (kind === "fleet" || (kind === "summary" && banners() !== warned)) load();
    },
    unmount() {
      clearInterval(again);
      asked?.abort();
      asked = null;
      trial.end();
      for (const remove of keys) remove();
    },
  };
}

function profileTexts(profiles, note = "") {
  if (!profiles.length) return null;
  return card("In words", { note }, profiles.map((it) => fold(`words ${it.name}`, `Profile ${it.name}`, { isOpen: profiles.length < 4 }, profileText(it))));
}

// Lines are indented by what they belong to: states, and what is said about each. After these come those about its parts.
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

// What would be if the file were another

function tryOut({ api }, current) {
  let timer = 0;
  let asked = null;
  let findings = [];
  let at = 0; // the line that was jumped to last
  const editor = new Editor("An edit to try", { changed: typed });
  const status = h("p", { class: "try-status", role: "status" });
  const results = h("div", { class: "conf-side" });
  const differs = h("span", { class: "note" });
  const reset = button("Back to the current one", () => begin(true), { mark: "refresh" });
  const element = h(
    "div",
    { class: "conf-grid" },
    card("An edit to try", { className: "conf-file", tools: h("span", { class: "row conf-tools" }, differs, reset) }, editor.element, h("p", { class: "body dim small" }, "Paste or type. It is judged against the nodes as they are now. Nothing is saved, and nothing is applied.")),
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
    asked?.abort();
    const mine = (asked = new AbortController());
    say("clock", "dim", "Looking at it …");
    element.setAttribute("aria-busy", "true");
    try {
      const answer = await api.post("configuration/check", { text: draft }, { signal: mine.signal });
      if (mine === asked) show(answer);
    } catch (error) {
      if (mine !== asked || error.name === "AbortError") return;
      say("critical", "bad", `It could not be looked at: ${error.message}`);
    }
    element.removeAttribute("aria-busy");
  }

  function say(mark, tone, text) {
    replace(status, h("span", { class: ["verdict", `tone-${tone}`] }, icon(mark), h("b", {}, text)));
  }

  function show({ isGood, findings: found = [], changes = [], lookedAt = 0, profiles = [] }) {
    findings = found;
    at = 0;
    editor.mark({ findings, changed: differing(current().text ?? "", draft).lines });
    const nodes = `${lookedAt} ${lookedAt === 1 ? "node was" : "nodes were"} looked at`;
    if (!isGood) say("critical", "bad", `It could not be used: ${counted(found) || "nobody can tell why"}.`);
    else if (changes.length) say("check", "good", `It could be used. ${nodes}; this would change:`);
    else say("check", "good", `It could be used. ${nodes}; nothing would change.`);
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
    at = stepped(findings, at, by) ?? 0;
    if (at) editor.jump(at);
  }

  return {
    element,
    begin,
    jump,
    end() {
      clearTimeout(timer);
      asked?.abort();
      asked = null;
    },
  };
}

function difference(added, gone) {
  const changed = Math.min(added, gone);
  const parts = [[changed, "changed"], [added - changed, "added"], [gone - changed, "removed"]].filter(([count]) => count);
  return parts.map(([count, word], index) => `${count} ${index ? "" : count === 1 ? "line " : "lines "}${word}`).join(", ") || "as it is now";
}

// The line of the next finding after a line, or of the one before it; beyond the last one comes the first.
function stepped(findings, from, by) {
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
  const rest = [more.length ? fold(`change ${profile} ${text}`, `${more.length} more`, {}, h("p", { class: "change-nodes" }, more.map(nodeLink))) : null, unnamed > 0 ? h("p", { class: "dim small" }, `and ${unnamed} that are not named here`) : null];
  return h(
    "li",
    {},
    count ? h("p", { class: "dim small" }, `${count} ${count === 1 ? "node" : "nodes"}`, profile ? [" of profile ", h("bdi", {}, profile)] : null) : null,
    h("p", {}, h("bdi", {}, text)),
    few.length ? list : null,
    rest,
  );
}
