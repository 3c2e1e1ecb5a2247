// The shell: header, navigation, banners, keyboard shortcuts, and the page selected by the URL.
//
// A page is a module of pages/ that exports `mount(root, context)`. `root` is an empty element; `context` is
//
//   api        lib/api.js: get, post
//   store      lib/store.js: the state, updated by events
//   route      {page, name, parameters}; always the current one
//   go(route)  navigates to a route, or to the current one with some parts replaced (`go({parameters: {…}}, {replace: true})`)
//   t(time)    a <time> with relative text that updates itself; see lib/time.js
//   keys       lib/keyboard.js; a page removes its shortcuts in unmount()
//
// and it returns {update(kind, data), unmount()}. `update` is called with each change of the store (see lib/store.js),
// and with `route` when only the parameters change. A page has one `pageHead` of
// lib/components.js, whose heading gets the focus on navigation. The styles of a page are in pages/NAME.css, linked in
// index.html. An error that a page throws is shown in its place; the shell continues.

import * as api from "./lib/api.js";
import { h, icon, replace, setText } from "./lib/dom.js";
import { Keys } from "./lib/keyboard.js";
import { showSession } from "./lib/login.js";
import { LEVEL_ICONS, failure, loading } from "./lib/components.js";
import { HOME, format, parse } from "./lib/route.js";
import { Store } from "./lib/store.js";
import { clock, date, full, setNow, t, tick } from "./lib/time.js";

// A hub has clusters instead of nodes, and other pages: `modes` lists the operator modes that have the page.
const PAGES = {
  clusters: { title: "Clusters", key: "c", modes: ["management"], load: () => import("./pages/clusters.js") },
  fleet: { title: "Fleet", key: "f", load: () => import("./pages/fleet.js") },
  timeline: { title: "Timeline", key: "t", load: () => import("./pages/timeline.js") },
  history: { title: "History", key: "y", load: () => import("./pages/history.js") },
  notices: { title: "Notices", key: "n", load: () => import("./pages/notices.js") },
  configuration: { title: "Configuration", short: "Config", key: "c", load: () => import("./pages/configuration.js") },
  health: { title: "Health", key: "h", modes: ["cluster", "management"], load: () => import("./pages/health.js") },
  nodes: { title: "Node", isHidden: true, load: () => import("./pages/node.js") },
};
const CONNECTIONS = { connecting: "Connecting", live: "Live", reconnecting: "Reconnecting", paused: "Paused" };
const THEMES = { auto: "Theme: as the system", light: "Theme: light", dark: "Theme: dark" };
const BREATH = 4000; // milliseconds before a broken connection gets a banner

const store = new Store();
const keys = new Keys();
const main = document.getElementById("main");
setNow(() => store.now());

let shown = null; // {route, page}: what is mounted
let turns = 0;

// Until the mode of the operator is known, the page in the URL is assumed to exist.
function isThere(page) {
  return Object.hasOwn(PAGES, page) && (store.mode === null || isOffered(PAGES[page]));
}

function isOffered({ modes = ["cluster"] }) {
  return modes.includes(store.mode ?? "cluster");
}

const context = { api, store, keys, t, route: parse(location.hash), go };

function go(wanted, { replace: isReplacing = false } = {}) {
  const parts = typeof wanted === "string" ? parse(wanted) : { ...context.route, ...wanted };
  const hash = format(parts);
  if (hash === location.hash) return;
  if (!isReplacing) {
    location.hash = hash;
    return;
  }
  history.replaceState(history.state, "", hash);
  routed();
}

async function routed() {
  const route = parse(location.hash);
  if (!isThere(route.page)) return void go({ page: store.mode === "management" ? "clusters" : HOME, name: "", parameters: {} }, { replace: true });
  context.route = route;
  mark(route);
  if (shown?.page && shown.route.page === route.page && shown.route.name === route.name) {
    shown.route = route;
    dispatch("route", route);
    return;
  }
  const turn = ++turns;
  const isFirst = shown === null;
  leave();
  shown = { route, page: null };
  const root = h("div", { class: ["content", `page-${route.page}`] });
  try {
    const slow = setTimeout(() => turn === turns && replace(main, loading("the page")), 150);
    const module = await PAGES[route.page].load().finally(() => clearTimeout(slow));
    if (turn !== turns) return;
    replace(main, root);
    shown.page = module.mount(root, context);
  } catch (error) {
    broken(error);
  }
  if (!isFirst) arrive();
}

function leave() {
  try {
    shown?.page?.unmount();
  } catch (error) {
    console.error(error);
  }
}

// After navigation, focus the heading: screen readers announce the page and continue from its start.
function arrive() {
  scrollTo(0, 0);
  (main.querySelector("h1") ?? main).focus({ preventScroll: true });
}

function dispatch(kind, data) {
  if (!shown?.page) return;
  try {
    shown.page.update(kind, data);
  } catch (error) {
    leave();
    broken(error);
  }
}

function broken(error) {
  console.error(error);
  if (shown) shown.page = null;
  const again = () => {
    shown = null;
    routed();
  };
  replace(main, h("div", { class: "content" }, h("h1", { class: "unseen", tabindex: "-1" }, "Something went wrong"), failure(error, again)));
}

// The header

const cluster = h("span", { class: "cluster" });
const timeHere = h("time", { class: "clock", title: "The operator's clock" });
const connection = h("span", { class: "connection", role: "img" }, h("span", { class: "dot" }), h("span", { class: "connection-word" }));
const person = h("span", { class: "person" });
const theme = h("button", { type: "button", class: "button quiet", onclick: nextTheme });
const pagesAbove = h("nav", { "aria-label": "Pages" });
const pagesBelow = document.getElementById("bottom");
let pageKeys = []; // functions that remove the shortcuts of pages

function build() {
  replace(
    document.getElementById("top"),
    h("a", { class: "brand", href: "#/", "aria-label": "Haulout, home" }, h("img", { src: "icons/haulout.svg", alt: "", width: 22, height: 22 }), h("span", {}, "Haulout")),
    pagesAbove,
    h("div", { class: "top-end" }, cluster, timeHere, connection, h("button", { type: "button", class: "button quiet only-wide", title: "Keys (?)", "aria-label": "Keys", onclick: () => keys.sheet() }, icon("key")), person, theme),
  );
  offer();
  keys.on("d", "Dark, light, or as the system", nextTheme);
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    (main.querySelector("h1") ?? main).focus();
  });
  showTheme();
}

// Creates links and shortcuts for the available pages.
function offer() {
  const offered = Object.entries(PAGES).filter(([, page]) => isOffered(page));
  const links = (isShort) => offered.filter(([, { isHidden }]) => !isHidden).map(([page, { title, short }]) => h("a", { href: format({ page }), data: { page } }, icon(page), h("span", {}, isShort ? (short ?? title) : title)));
  replace(pagesAbove, links(false));
  replace(pagesBelow, links(true));
  for (const end of pageKeys) end();
  pageKeys = offered.filter(([, { key }]) => key).map(([page, { title, key }]) => keys.on(`g ${key}`, title, () => go({ page, name: "", parameters: {} })));
}

function mark(route) {
  const page = route.page === "nodes" ? "fleet" : route.page;
  for (const link of [...pagesAbove.children, ...pagesBelow.children]) {
    if (link.dataset.page === page) link.setAttribute("aria-current", route.page === page ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  title(route);
}

function title(route) {
  const page = route.name || PAGES[route.page]?.title;
  document.title = [page, store.summary?.cluster, "Haulout"].filter(Boolean).join(" · ");
}

function showClock() {
  if (!store.summary) return;
  const now = store.now();
  setText(timeHere, `${clock(now)} UTC`);
  timeHere.dateTime = new Date(now).toISOString();
  timeHere.title = `The operator's clock: ${full(now)}`;
  timeHere.dataset.date = date(now);
}

function showConnection() {
  const { state, problem } = store.connection;
  connection.dataset.state = state;
  connection.setAttribute("aria-label", `Connection: ${CONNECTIONS[state]}`);
  connection.title = problem || { live: "Changes are shown as they happen", paused: "No requests are sent while this tab is hidden" }[state] || "";
  setText(connection.lastChild, CONNECTIONS[state]);
}

// Themes

function chosenTheme() {
  return document.documentElement.dataset.theme ?? "auto";
}

function nextTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const order = dark ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
  const next = order[(order.indexOf(chosenTheme()) + 1) % order.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "auto") localStorage.removeItem("haulout.theme");
    else localStorage.setItem("haulout.theme", next);
  } catch {
    // Without storage the choice lasts until the page is closed.
  }
  showTheme();
}

function showTheme() {
  const chosen = chosenTheme();
  replace(theme, icon({ auto: "auto", light: "sun", dark: "moon" }[chosen]));
  theme.setAttribute("aria-label", THEMES[chosen]);
  theme.title = `${THEMES[chosen]} (d)`;
}

// Banners

let loadedVersion = ""; // the version that this page was loaded from
let banners = ""; // the banners shown, as JSON to compare with, so that screen readers announce each once

function showBanners() {
  const wanted = [...ownBanners(), ...(store.summary?.banners ?? [])];
  const serialized = JSON.stringify(wanted);
  if (serialized === banners) return;
  banners = serialized;
  replace(document.getElementById("banners"), wanted.map(banner));
}

function ownBanners() {
  return [...lost(), ...updated()];
}

function lost() {
  const { state, since, at, problem } = store.connection;
  if (state !== "reconnecting" || Date.now() - since < BREATH) return [];
  const stale = store.hasFleet ? ` The data shown is from ${clock(at)} UTC.` : "";
  return [{ level: "critical", message: `No connection to the operator: ${problem}${stale} Trying again.`, page: "" }];
}

// Modules are loaded on demand: modules of another version may not work with the loaded ones.
function updated() {
  const version = store.summary?.version;
  loadedVersion ||= version;
  if (version === loadedVersion) return [];
  return [{ level: "info", message: `The operator now runs version ${version}, and this page was loaded from version ${loadedVersion}.`, isOld: true }];
}

function banner({ level, message, page, isOld }) {
  if (isOld) return h("div", { class: ["banner", "level-info"] }, icon("info"), h("p", {}, message), h("a", { href: location.hash || "#/", onclick: () => location.reload() }, "Reload"));
  const more = PAGES[page] && page !== context.route.page ? h("a", { href: format({ page }) }, `See ${PAGES[page].title.toLowerCase()}`) : null;
  return h("div", { class: ["banner", `level-${level}`] }, icon(LEVEL_ICONS[level] ?? "info"), h("p", {}, h("bdi", {}, message)), more);
}

// Once a second, aligned with the clock; not while the tab is hidden.
function everySecond() {
  if (!document.hidden) {
    showClock();
    showBanners();
    tick();
  }
  setTimeout(everySecond, 1000 - (Date.now() % 1000));
}

build();
showConnection();
store.subscribe((kind, data) => {
  if (kind === "connection") showConnection();
  if (kind === "mode") {
    offer();
    if (isThere(context.route.page)) mark(context.route);
    else routed();
  }
  if (kind === "session") showSession(data, { api, place: person });
  if (kind === "summary") {
    setText(cluster, data.cluster ?? "");
    cluster.title = data.cluster ? `Cluster ${data.cluster}` : "";
    title(context.route);
    showClock();
  }
  if (kind === "summary" || kind === "connection") showBanners();
  dispatch(kind, data);
});
addEventListener("hashchange", routed);
store.start();
routed();
everySecond();
