// Filter fields of a page. Their values are in the URL, so a link shows the same to others.
//
//   const bar = filterBar("Filter nodes", [{ name: "q", label: "Search nodes" }, { name: "zone", label: "Zone", all: "All zones", options: [] }], onChange);
//   bar.show(parameters, { zone: ["a", "b"] });   bar.element   bar.focus()
//
// A field without options is a search. A field with fewer than two options and no value is hidden.

import { h, icon, replace } from "./dom.js";
import { button } from "./components.js";

const PAUSE = 150; // milliseconds after the last letter

export function filterBar(label, fields, onChange, ...rest) {
  let timer = 0; // runs while typed text is not reported yet
  const inputs = new Map(fields.map((field) => [field.name, field.options ? choice(field, onChange) : search(field)]));
  const clear = button("Clear", () => now(Object.fromEntries(fields.map(({ name }) => [name, ""]))), { mark: "close", kind: "quiet" });
  const boxed = ([name, input]) => (fields.find((it) => it.name === name).options ? input : h("div", { class: "search" }, icon("search"), input, h("kbd", { "aria-hidden": "true" }, "/")));
  const element = h("div", { class: "filters filter-bar", role: "search", "aria-label": label }, [...inputs].map(boxed), clear, rest);

  function search({ name, label: title }) {
    const input = h("input", { class: "field", type: "search", name, placeholder: "Search", "aria-label": title, autocomplete: "off", spellcheck: "false", "aria-keyshortcuts": "/" });
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => now({ [name]: input.value.trim() }), PAUSE);
    });
    return input;
  }

  function now(parameters) {
    clearTimeout(timer);
    timer = 0;
    onChange(parameters);
  }

  return {
    element,
    focus: () => element.querySelector("input")?.select(),
    end: () => clearTimeout(timer),
    show(parameters, options = {}) {
      for (const { name, options: fixed, all } of fields) {
        const input = inputs.get(name);
        const value = parameters[name] ?? "";
        if (fixed) fill(input, all, value, options[name] ?? fixed);
        else if (document.activeElement !== input || (!timer && input.value.trim() !== value)) input.value = value; // the URL wins, but does not overwrite text being typed
      }
      clear.hidden = !fields.some(({ name }) => parameters[name]);
    },
  };
}

function choice({ name, label }, onChange) {
  return h("select", { class: "field", name, "aria-label": label, onchange: (event) => onChange({ [name]: event.target.value }) });
}

function fill(select, all, value, options) {
  const offered = options.map((it) => (typeof it === "string" ? { value: it, text: it } : it));
  const words = new Map(offered.map((it) => [it.value, it.text]));
  if (value && !words.has(value)) offered.push({ value, text: value.split(",").map((it) => words.get(it) ?? it).join(", ") });
  const serialized = JSON.stringify(offered);
  if (select.dataset.serialized !== serialized) {
    select.dataset.serialized = serialized;
    replace(select, h("option", { value: "" }, all), offered.map((it) => h("option", { value: it.value }, it.text)));
  }
  select.value = value;
  select.hidden = offered.length < 2 && !value;
}
