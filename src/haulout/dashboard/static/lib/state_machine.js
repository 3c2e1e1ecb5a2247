// The state machine of a profile, drawn: its states, the transitions between them, and the current state.
//
// Drawn from left to right where there is room, else from top to bottom. Besides colour, marks and lines show the result:
// a transition that passes is solid and has a check mark; one that does not is dashed and has a cross.

import { s } from "./dom.js";
import { head, rounded } from "./svg.js";

const STATES = ["operational", "maintenance-required", "in-maintenance"];
const BOX = { width: 190, height: 44 };
const NARROWEST_GAP = 80;
const LETTER = 6.4; // pixels, of the small text

// A drawing of `profile` (a ProfileState) for a place that is `width` pixels wide.
export function machine(profile, width) {
  const states = [...new Set([...STATES, profile.state, ...(profile.transitions ?? []).flatMap((it) => [it.source, it.target])])];
  const links = linksOf(profile.transitions ?? []);
  const gap = (width - states.length * BOX.width) / (states.length - 1);
  const plan = gap >= NARROWEST_GAP ? across(states, links, width, Math.min(gap, 240)) : down(states, links, width);
  return s(
    "svg",
    { class: "machine", viewBox: `0 0 ${plan.width} ${plan.height}`, width: plan.width, height: plan.height, role: "img", "aria-label": inWords(profile, links) },
    links.map((link) => drawLink(link, plan)),
    states.map((state) => drawState(state, plan.boxes.get(state), state === profile.state, state === profile.state && Boolean(profile.waitingFor))),
  );
}

// Transitions between the same two states share a line, which shows the best result.
function linksOf(transitions) {
  const links = new Map();
  for (const it of transitions.filter((one) => one.source !== one.target)) {
    const key = `${it.source}\n${it.target}`;
    const link = links.get(key) ?? { source: it.source, target: it.target, all: [] };
    link.all.push(it);
    links.set(key, link);
  }
  for (const link of links.values()) {
    const verdicts = link.all.map(verdictOf);
    link.verdict = ["open", "closed"].find((it) => verdicts.includes(it)) ?? "elsewhere";
    link.text = link.all.map((it) => it.expression || "always").join(" or ");
  }
  return [...links.values()];
}

// `open`, `closed`, or `elsewhere`: it does not start at the current state, or its checks are not evaluated yet, as
// during another transition.
export function verdictOf({ isCurrent, passed, veto, error, checks = [] }) {
  if (!isCurrent) return "elsewhere";
  if (passed && !veto) return "open";
  const isEvaluated = veto || error || !checks.length || checks.some((it) => it.passed !== undefined || it.reason || it.error);
  return isEvaluated ? "closed" : "elsewhere";
}

const MARKS = { open: "✓ ", closed: "✗ ", elsewhere: "" };

function inWords(profile, links) {
  const verdictTexts = { open: "passes", closed: "does not pass", elsewhere: "" };
  const all = links.map((it) => `${it.source} to ${it.target} when ${it.text}${verdictTexts[it.verdict] && `, which ${verdictTexts[it.verdict]}`}`);
  return `Profile ${profile.name} is ${profile.state}. Transitions: ${all.join("; ") || "none"}.`;
}

function drawState(state, box, isCurrent, isLeaving) {
  return s(
    "g",
    { class: `machine-state${isCurrent ? " is-current" : ""}${isLeaving ? " is-leaving" : ""}` },
    s("rect", { x: box.x, y: box.y, width: box.width, height: box.height, rx: 8 }),
    isCurrent ? s("circle", { cx: box.x + 14, cy: box.y + box.height / 2, r: 4 }) : null,
    s("text", { x: box.x + box.width / 2 + (isCurrent ? 8 : 0), y: box.y + box.height / 2 + 4.5 }, cut(state, (box.width - 30) / 7.4)),
  );
}

function drawLink(link, plan) {
  const { points, label } = plan.route(link);
  const full = `${link.source} → ${link.target}: ${MARKS[link.verdict]}${link.text}`;
  return s(
    "g",
    { class: `machine-way is-${link.verdict}` },
    s("title", {}, full),
    s("path", { class: "machine-line", d: rounded(points) }),
    s("path", { class: "machine-head", d: head(points.at(-2), points.at(-1)) }),
    s("text", { x: label.x, y: label.y, "text-anchor": label.anchor }, cut(MARKS[link.verdict] + link.text, label.room / LETTER)),
  );
}

function across(states, links, width, gap) {
  const index = new Map(states.map((state, at) => [state, at]));
  const distance = (it) => index.get(it.target) - index.get(it.source);
  const above = links.some((it) => distance(it) > 1) ? 44 : 12;
  const below = links.some((it) => distance(it) < -1) ? 44 : 12;
  const left = Math.max(0, (width - states.length * BOX.width - (states.length - 1) * gap) / 2);
  const boxes = new Map(states.map((state, at) => [state, { ...BOX, x: left + at * (BOX.width + gap), y: above }]));
  const middle = above + BOX.height / 2;

  const route = (link) => {
    const [from, to] = [boxes.get(link.source), boxes.get(link.target)];
    const steps = distance(link);
    const forward = steps > 0;
    if (Math.abs(steps) === 1) {
      const y = middle + (forward ? -9 : 9);
      const [start, end] = forward ? [from.x + from.width + 3, to.x - 3] : [from.x - 3, to.x + to.width + 3];
      return {
        points: [{ x: start, y }, { x: end, y }],
        label: { x: (start + end) / 2, y: forward ? y - 7 : y + 16, anchor: "middle", room: gap - 12 },
      };
    }
    const y = forward ? above - 26 : above + BOX.height + 26;
    const edge = forward ? above - 3 : above + BOX.height + 3;
    const start = from.x + from.width / 2 + (forward ? 12 : -12);
    const end = to.x + to.width / 2 + (forward ? -12 : 12);
    return {
      points: [{ x: start, y: edge }, { x: start, y }, { x: end, y }, { x: end, y: edge }],
      label: { x: (start + end) / 2, y: forward ? y - 6 : y + 15, anchor: "middle", room: Math.abs(end - start) - 40 },
    };
  };
  return { width, height: above + BOX.height + below, boxes, route };
}

function down(states, links, width) {
  const index = new Map(states.map((state, at) => [state, at]));
  const distance = (it) => index.get(it.target) - index.get(it.source);
  const gap = 58;
  const side = { left: links.some((it) => distance(it) > 1) ? 24 : 2, right: links.some((it) => distance(it) < -1) ? 24 : 2 };
  const inner = Math.max(80, width - side.left - side.right);
  const boxes = new Map(states.map((state, at) => [state, { x: side.left, y: 2 + at * (BOX.height + gap), width: inner, height: BOX.height }]));

  const route = (link) => {
    const [from, to] = [boxes.get(link.source), boxes.get(link.target)];
    const steps = distance(link);
    const forward = steps > 0;
    if (Math.abs(steps) === 1) {
      const x = side.left + (forward ? 18 : inner / 2 + 18);
      const [start, end] = forward ? [from.y + from.height + 3, to.y - 3] : [from.y - 3, to.y + to.height + 3];
      const alone = !links.some((it) => it.source === link.target && it.target === link.source);
      return {
        points: [{ x, y: start }, { x, y: end }],
        label: { x: x + 10, y: (start + end) / 2 + 4, anchor: "start", room: (alone && forward ? inner : inner / 2) - 36 },
      };
    }
    const x = forward ? side.left - 14 : width - 10;
    const edge = forward ? side.left - 3 : side.left + inner + 3;
    const [start, end] = [from.y + BOX.height / 2 + (forward ? 8 : -8), to.y + BOX.height / 2 + (forward ? -8 : 8)];
    const beside = forward ? from.y + BOX.height + 18 : from.y - 12;
    return {
      points: [{ x: edge, y: start }, { x, y: start }, { x, y: end }, { x: edge, y: end }],
      label: { x: forward ? x + 8 : x - 8, y: beside, anchor: forward ? "start" : "end", room: inner / 2 - 8 },
    };
  };
  return { width, height: states.length * (BOX.height + gap) - gap + 4, boxes, route };
}

function cut(text, letters) {
  const most = Math.max(3, Math.floor(letters));
  const all = [...text];
  return all.length <= most ? text : `${all.slice(0, most - 1).join("")}…`;
}
