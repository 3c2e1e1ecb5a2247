// The state of the operator as the page knows it, updated by one event stream.
//
//   store.summary          Summary, or null before it is known
//   store.nodes            Map of NodeSummary by name
//   store.notices          Map of Notice by name; null until `wantNotices()`
//   store.mode             "cluster", "management" (a hub), or null before it is known
//   store.clusters         Map of ClusterSummary by key; of a hub, and null before they are known
//   store.session          Session, or null
//   store.connection       {state: "connecting" | "live" | "reconnecting" | "paused", since (here), at (there), problem}
//   store.follow(node)     request `node` events for one node (null: for none)
//   store.wantNotices()    load notices and keep them up to date
//   store.subscribe(fn)    fn(kind, data) on each change; returns a function to unsubscribe
//   store.now()            the operator's clock, in milliseconds
//
// Kinds: `fleet` (everything was reloaded: no data), `nodes` (NodesChanged), `summary`, `notices` (NoticesChanged, or null if
// reloaded), `node` (the data of the event), `clusters` (ClustersChanged, or null if reloaded), `mode`, `session`, `connection`.
//
// The stream is opened before the state is requested, so that no change is missed in between. Events that arrive before
// the response are queued until then. An older node may briefly replace a newer one; the queued event corrects it.
// While the tab is hidden the stream is closed: hidden tabs cost the operator nothing.

import { address, get } from "./api.js";
import { ms } from "./time.js";
import { Stream } from "./stream.js";

const CLOCK_CHECKS = [2_000, 10_000, 60_000]; // milliseconds between requests for the time; the last interval repeats

export class Store {
  summary = null;
  nodes = new Map();
  notices = null;
  mode = null;
  clusters = null;
  session = null;
  connection = { state: "connecting", since: Date.now(), at: 0, problem: "" };
  hasFleet = false;

  #listeners = new Set();
  #followed = null;
  #stream;
  #waiting = null; // events that wait for the state to be loaded
  #loads = 0;
  #clock = { there: Date.now(), here: performance.now(), rate: 1, first: null };
  #clockTimer = 0;

  constructor() {
    this.#stream = new Stream(() => address("events", { node: this.#followed }), {
      event: (kind, data) => this.#event(kind, data),
      broken: (error) => this.#broken(error),
    });
  }

  start() {
    document.addEventListener("visibilitychange", () => this.#onVisibilityChange());
    addEventListener("pagehide", () => this.#stream.close());
    addEventListener("pageshow", (event) => event.persisted && this.#onVisibilityChange());
    get("session").then((session) => this.#keep("session", session), () => {});
    this.#onVisibilityChange();
  }

  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  follow(node) {
    if (node === this.#followed) return;
    this.#followed = node;
    if (this.connection.state !== "paused") this.#stream.open();
  }

  async wantNotices() {
    if (this.notices) return;
    const { notices } = await get("notices");
    this.notices = byName(notices);
    this.#notify("notices", null);
  }

  // Reconnects and reloads everything, as after an error that was shown.
  retry() {
    this.#stream.open();
  }

  now() {
    const { there, here, rate } = this.#clock;
    return there + (performance.now() - here) * rate;
  }

  #onVisibilityChange() {
    clearTimeout(this.#clockTimer);
    if (document.hidden) {
      this.#stream.close();
      this.#connected("paused");
      return;
    }
    this.#stream.open();
    this.#lookAtClock(0);
  }

  #event(kind, data) {
    if (kind === "hello") {
      this.#is(data);
      this.#load();
    } else if (kind === "reset") this.#stream.open();
    else if (this.#waiting) this.#waiting.push([kind, data]);
    else this.#apply(kind, data);
  }

  // Without a leader there is no stream, but the summary says so. A deleted node must not break the whole stream.
  #broken({ message, status }) {
    if (status === 404 && this.#followed) {
      this.#followed = null;
      this.#stream.open();
      return;
    }
    this.#connected("reconnecting", message);
    if (status) this.#askSummary().then((summary) => this.#sum(summary), () => {});
  }

  async #load() {
    const load = ++this.#loads;
    this.#waiting = [];
    try {
      const isHub = this.mode === "management";
      const [summary, fleet, notices, clusters] = await Promise.all([this.#askSummary(), isHub ? {} : get("nodes"), this.notices ? get("notices") : null, isHub ? get("clusters") : null]);
      if (load !== this.#loads) return;
      this.#loaded(summary, fleet, notices, clusters);
    } catch (error) {
      if (load !== this.#loads) return;
      this.#waiting = null;
      this.#connected("reconnecting", error.message);
      setTimeout(() => load === this.#loads && !document.hidden && this.#stream.open(), 3000);
    }
  }

  #loaded(summary, fleet, notices, clusters) {
    this.#sum(summary);
    this.nodes = byName(fleet.nodes);
    this.hasFleet = true;
    if (notices) this.notices = byName(notices.notices);
    if (clusters) this.clusters = byName(clusters.clusters);
    this.#connected("live");
    this.#notify("fleet");
    if (clusters) this.#notify("clusters", null);
    if (notices) this.#notify("notices", null);
    const waiting = this.#waiting;
    this.#waiting = null;
    for (const [kind, data] of waiting) this.#apply(kind, data);
  }

  #apply(kind, data) {
    if (kind === "summary") this.#sum(data);
    else if (kind === "clusters") this.clusters && this.#change(this.clusters, kind, data);
    else if (kind === "nodes") this.#change(this.nodes, kind, data);
    else if (kind === "notices") this.notices && this.#change(this.notices, kind, data);
    else this.#notify(kind, data);
  }

  #change(map, kind, data) {
    for (const one of data.changed ?? []) map.set(one.key ?? one.name, one);
    for (const name of data.deleted ?? []) map.delete(name);
    this.#notify(kind, data);
  }

  #sum(summary) {
    this.#is(summary);
    this.#keep("summary", summary);
  }

  #is({ mode = "cluster" }) {
    if (mode !== this.mode) this.#keep("mode", mode);
  }

  #keep(what, value) {
    this[what] = value;
    this.#notify(what, value);
  }

  #connected(state, problem = "") {
    if (state === this.connection.state && problem === this.connection.problem) return;
    const isSame = state === this.connection.state;
    const since = isSame ? this.connection.since : Date.now();
    const at = isSame ? this.connection.at : this.now();
    this.connection = { state, since, at, problem };
    this.#notify("connection", this.connection);
  }

  #notify(kind, data) {
    for (const listener of this.#listeners) listener(kind, data);
  }

  async #askSummary() {
    const sent = performance.now();
    const summary = await get("summary");
    if (summary.time) this.#setClock(ms(summary.time), (sent + performance.now()) / 2);
    return summary;
  }

  // A sandbox may run a thousand times faster than real time. Two readings of its clock give the rate; the farther apart,
  // the more exact. A reading earlier than the first one means that the clock was replaced.
  #setClock(there, here) {
    const { first } = this.#clock;
    const apart = first ? here - first.here : 0;
    const rate = apart > 1500 ? (there - first.there) / apart : this.#clock.rate;
    const isAnother = !first || there < first.there;
    this.#clock = { there, here, rate: isAnother || Math.abs(rate - 1) < 0.1 ? 1 : rate, first: isAnother ? { there, here } : first };
  }

  #lookAtClock(turn) {
    this.#clockTimer = setTimeout(async () => {
      try {
        this.#sum(await this.#askSummary());
      } catch {
        // The stream reports the error.
      }
      if (!document.hidden) this.#lookAtClock(turn + 1);
    }, CLOCK_CHECKS[Math.min(turn, CLOCK_CHECKS.length - 1)]);
  }
}

function byName(list) {
  return new Map((list ?? []).map((one) => [one.key ?? one.name, one]));
}
