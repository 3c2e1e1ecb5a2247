// Components of pages. Their styles are in style.css.

import { h, icon, replace } from "./dom.js";
import { toNode } from "./route.js";

// Most important first.
export const STATES = ["blocked", "draining", "in-maintenance", "recovering", "planned", "idle"];
export const STATE_WORDS = {
  blocked: "Blocked",
  draining: "Draining",
  "in-maintenance": "In maintenance",
  recovering: "Recovering",
  planned: "Planned",
  idle: "Idle",
};
export const LEVEL_ICONS = { info: "info", warning: "warning", critical: "critical" };

const FEW = 1.5; // seconds that "Copied" stays

export function stateWord(state) {
  return STATE_WORDS[state] ?? state;
}

// The state of a node, shown by colour, shape and text.
export function stateMark(state) {
  return h("span", { class: ["state", `is-${state}`] }, icon(state), h("span", {}, stateWord(state)));
}

export function nodeLink(name) {
  return h("a", { class: "node-link", href: toNode(name) }, h("bdi", {}, name));
}

// Good or bad, in a word: `good`, `bad`, `warn` or `dim`.
export function verdict(tone, text, mark) {
  return h("span", { class: ["verdict", `tone-${tone}`] }, icon(mark ?? { good: "check", bad: "close", warn: "warning", dim: "unknown" }[tone]), text);
}

// The header of a page, with its only h1, which gets the focus on navigation.
export function pageHead(title, ...rest) {
  return h("header", { class: "page-head" }, h("h1", { tabindex: "-1" }, title), h("div", { class: "page-tools" }, rest));
}

// A part of a page with a heading.
export function card(title, { note = "", tools = null, className = "" } = {}, ...children) {
  const heading = h("h2", {}, title);
  return h(
    "section",
    { class: ["card", className], "aria-label": title },
    h("header", {}, heading, note ? h("span", { class: "note" }, note) : null, tools),
    children,
  );
}

// An empty state: what it means, and what to do.
export function empty(title, text, ...actions) {
  return h("div", { class: "empty" }, h("p", { class: "empty-title" }, title), text ? h("p", {}, text) : null, actions.length ? h("div", { class: "row" }, actions) : null);
}

export function failure(error, retry) {
  return h(
    "div",
    { class: "empty failure" },
    icon("critical"),
    h("p", { class: "empty-title" }, error.status === 404 ? "Not found" : "Loading failed"),
    h("p", {}, error.message),
    retry ? h("div", { class: "row" }, button("Try again", retry, { mark: "refresh" })) : null,
  );
}

export function loading(what) {
  return h("div", { class: "empty loading", role: "status" }, h("p", {}, `Loading ${what} …`));
}

export function button(text, act, { mark = "", kind = "", title = null, ...rest } = {}) {
  return h("button", { type: "button", class: ["button", kind], title, onclick: act, ...rest }, mark ? icon(mark) : null, text ? h("span", {}, text) : null);
}

// A choice of one option: [{value, text, mark}]. `onChange(value)` is called on change.
export function segments(label, options, chosen, onChange) {
  const buttons = options.map(({ value, text, mark, title }) =>
    h("button", { type: "button", "aria-pressed": String(value === chosen), title: title ?? null, data: { value }, onclick: () => onChange(value) }, mark ? icon(mark) : null, h("span", {}, text)),
  );
  return h("div", { class: "segments", role: "group", "aria-label": label }, buttons);
}

export function choose(element, value) {
  for (const each of element.children) each.setAttribute("aria-pressed", String(each.dataset.value === value));
}

// A shell command with a copy button.
export function command(text, { title = "" } = {}) {
  return h("div", { class: "command" }, h("pre", { tabindex: "0", "aria-label": title || "Command" }, h("code", {}, text)), copyButton(text));
}

export function copyButton(text, label = "Copy") {
  const face = h("span", { class: "copy-face" }, icon("copy"));
  const element = h("button", { type: "button", class: "button quiet copy", "aria-label": label, title: label, onclick: copy }, face);
  async function copy() {
    const done = await copied(text);
    replace(face, icon(done ? "check" : "close"));
    element.setAttribute("aria-label", done ? "Copied" : "Could not be copied");
    setTimeout(() => {
      replace(face, icon("copy"));
      element.setAttribute("aria-label", label);
    }, FEW * 1000);
  }
  return element;
}

// Over plain HTTP, as with a port-forward from another machine, browsers have no clipboard API, only execCommand.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = h("textarea", { class: "unseen", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

// How much of a limit is used. The numbers are shown next to it, so colour is not the only sign.
export function meter(used, limit, label) {
  const share = limit > 0 ? Math.min(100, (100 * used) / limit) : used > 0 ? 100 : 0;
  const tone = used > limit ? "over" : used === limit ? "full" : "room";
  return h("div", { class: ["meter", `meter-${tone}`], role: "meter", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": Math.max(limit, used), "aria-valuenow": used, style: { "--share": `${share}%` } });
}

// Columns: [{title, cell(row), numeric, className}]. For tables of moderate size.
export function table(label, columns, rows) {
  const head = columns.map(({ title, numeric, className }) => h("th", { scope: "col", class: [numeric && "numeric", className] }, title));
  const line = (row) => h("tr", {}, columns.map(({ title, cell, numeric, className }) => h("td", { class: [numeric && "numeric", className], data: { title } }, cell(row))));
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, h("table", {}, h("thead", {}, h("tr", {}, head)), h("tbody", {}, rows.map(line))));
}

export function toast(text, tone = "info") {
  const element = h("div", { class: ["toast", `tone-${tone}`] }, icon(tone === "bad" ? "critical" : tone === "good" ? "check" : "info"), h("span", {}, text));
  document.getElementById("toasts").append(element);
  setTimeout(() => element.remove(), tone === "bad" ? 10_000 : 5_000);
}
