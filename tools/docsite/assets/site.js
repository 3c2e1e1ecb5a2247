// Light and dark, the search, and buttons to copy commands. Everything works from files, without a server.
"use strict";

const ROOT = document.currentScript.dataset.root;
const THEME = "haulout-docs-theme";
const MOST = 20;

const remembered = () => { try { return localStorage.getItem(THEME); } catch { return null; } };
const remember = (theme) => { try { localStorage.setItem(THEME, theme); } catch { /* then not */ } };

if (remembered()) document.documentElement.dataset.theme = remembered();

document.addEventListener("DOMContentLoaded", () => {
  switchTheme(document.getElementById("theme"));
  openMenu(document.getElementById("menu"), document.getElementById("pages"));
  search(document.getElementById("search"), document.getElementById("found"));
  document.querySelectorAll("pre").forEach(offerCopy);
  document.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
});

function switchTheme(button) {
  button.addEventListener("click", () => {
    const now = document.documentElement.dataset.theme
      || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
    const other = now === "dark" ? "light" : "dark";
    document.documentElement.dataset.theme = other;
    remember(other);
  });
}

function openMenu(button, pages) {
  button.addEventListener("click", () => {
    button.setAttribute("aria-expanded", String(pages.classList.toggle("is-open")));
  });
}

// Only commands are copied, not their prompt and not what they print.
function offerCopy(block) {
  if (!navigator.clipboard) return;
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    const commands = [...block.querySelectorAll(".command")];
    const text = commands.length ? commands.map((it) => it.textContent).join("") : block.querySelector("code").textContent;
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  block.append(button);
}

function search(input, list) {
  let loading = null;
  const load = () => loading ??= new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = `${ROOT}search.js`;
    script.onload = resolve;
    script.onerror = reject;
    document.head.append(script);
  });
  const show = async () => {
    await load();
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean).map(stem);
    list.replaceChildren(...(words.length ? rows(words) : []));
    list.hidden = !words.length;
  };
  input.addEventListener("focus", load, { once: true });
  input.addEventListener("input", show);
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|TEXTAREA)$/.test(document.activeElement.tagName);
    if (event.key === "/" && !typing) { event.preventDefault(); input.focus(); }
    if (event.key === "Escape") { list.hidden = true; input.blur(); }
    if (!list.hidden && (event.key === "ArrowDown" || event.key === "ArrowUp")) { event.preventDefault(); move(event.key === "ArrowDown" ? 1 : -1); }
    if (event.key === "Enter" && document.activeElement === input) list.querySelector("a")?.click();
  });
  document.addEventListener("click", (event) => { if (!event.target.closest(".search")) list.hidden = true; });
  const move = (step) => {
    const stops = [input, ...list.querySelectorAll("a")];
    stops[(stops.indexOf(document.activeElement) + step + stops.length) % stops.length].focus();
  };
}

function rows(words) {
  const found = window.searchIndex
    .map((entry) => ({ entry, score: scored(entry, words) }))
    .filter((it) => it.score > 0)
    .sort((a, b) => b.score - a.score)
    .slice(0, MOST);
  return found.length ? found.map((it) => row(it.entry, words)) : [nothing()];
}

// One policy is found by "policies", and many by "policy".
const stem = (word) => (word.length > 4 ? word.replace(/(ies|es|s|y)$/, "") : word);

// All words must be there. One in a title counts more than one in the text, a whole word more than a part of one, and
// a page that is all about them more than a section of another.
function scored([address, page, heading, text], words) {
  let total = 0;
  for (const word of words) {
    const score = 12 * hit(heading || page, word) + 10 * hit(page, word) + hit(text, word);
    if (!score) return 0;
    total += score;
  }
  return (/^(repository|design)\//.test(address) ? total / 4 : total) + (heading ? 0 : 4);
}

function hit(text, word) {
  const at = text.toLowerCase().indexOf(word);
  if (at < 0) return 0;
  const begins = at === 0 || /\W/.test(text[at - 1]);
  const ends = at + word.length === text.length || /\W/.test(text[at + word.length]);
  return 1 + begins + (begins && ends);
}

function row([address, page, heading, text], words) {
  const link = document.createElement("a");
  link.href = ROOT + address;
  link.append(heading ? `${page}: ${heading}` : page);
  const small = document.createElement("small");
  const at = Math.max(0, text.toLowerCase().indexOf(words[0]) - 30);
  small.textContent = text.slice(at, at + 160);
  link.append(small);
  const item = document.createElement("li");
  item.append(link);
  return item;
}

function nothing() {
  const text = document.createElement("p");
  text.textContent = "Nothing has all of these words.";
  const item = document.createElement("li");
  item.append(text);
  return item;
}
