// Creates elements. Data is untrusted: it becomes text nodes and attributes, never markup.
//
//   h("a", { class: "tile", href: "#/nodes/n1", onclick: open }, icon("clock"), "n1")
//
// `class` takes a string or a list with holes; `data` and `style` take objects (style goes by CSSOM, which the content
// security policy allows, and custom properties work); `on…` is a listener; true is an empty attribute; null, undefined
// and false are left out, as they are among children. Lists of children are flattened.

import { PATHS } from "./icons.js";

const SVG = "http://www.w3.org/2000/svg";
const SAFE = /^(#|\.{0,2}\/(?!\/)|https?:\/\/)/i; // allowed link targets

export function h(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

export function s(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

export function icon(name, title) {
  const paths = PATHS[name] ?? PATHS.unknown;
  const label = title ? { role: "img", "aria-label": title } : { "aria-hidden": "true" };
  return s("svg", { class: ["icon", `icon-${name}`], viewBox: "0 0 16 16", ...label }, paths.map(([tag, rest]) => s(tag, rest)));
}

export function replace(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

// Writes only what differs: an assignment of the same text still costs a layout.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(element, name, value);
  element.append(...nodes(children));
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "class") element.setAttribute("class", Array.isArray(value) ? value.filter(Boolean).join(" ") : value);
  else if (name === "data") Object.assign(element.dataset, value);
  else if (name === "style") for (const [key, entry] of Object.entries(value)) element.style.setProperty(key, entry);
  else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
  else if (name === "href" && !SAFE.test(value)) return;
  else element.setAttribute(name, value === true ? "" : String(value));
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : String(child)));
}
