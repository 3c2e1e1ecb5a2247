// Icons, on a grid of 16. Lines take the colour of the text around them; `fill` marks areas.

const line = (d) => ["path", { d }];
const area = (d) => ["path", { d, fill: "currentColor", stroke: "none" }];
const ring = (r, cx = 8, cy = 8) => ["circle", { cx, cy, r }];
const dot = (r, cx = 8, cy = 8) => ["circle", { cx, cy, r, fill: "currentColor", stroke: "none" }];

export const PATHS = {
  // The states of nodes: distinguishable by shape alone, down to 10 pixels. style.css has the same for tiles.
  idle: [dot(2.25)],
  planned: [ring(5), line("M8 5.2V8l2 1.4")],
  draining: [area("M2.5 4h11L8 13.2z")],
  blocked: [line("M4 4l8 8M12 4l-8 8")],
  "in-maintenance": [area("M3.8 3h3v10h-3zM9.2 3h3v10h-3z")],
  recovering: [area("M2.5 12h11L8 2.8z")],
  // The same of clusters, beside these.
  waiting: [ring(5), line("M8 5.2V8l2 1.4")],
  unreachable: [line("M4 4l8 8M12 4l-8 8")],
  unreadable: [line("M4 4l8 8M12 4l-8 8")],
  connecting: [line("M3.2 8.2h.1M8 8.2h.1M12.8 8.2h.1")],
  leaving: [line("M3.5 4.5h9M6.5 4.5v-2h3v2M4.8 4.5l.6 9h5.2l.6-9")],
  // Pages
  fleet: [line("M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z")],
  clusters: [line("M5.5 2h5v3.5h-5zM1.5 10.5h5V14h-5zM9.5 10.5h5V14h-5zM8 5.5V8M4 10.5V8h8v2.5")],
  timeline: [line("M2 3.5h6M5 8h8M3.5 12.5h5M14 1.5v0M11 1.5v13")],
  history: [line("M2.6 9.5a5.5 5.5 0 1 0 .6-4M2.5 2.5v3h3M8 5v3.2l2.2 1.5")],
  notices: [line("M4 11V7a4 4 0 0 1 8 0v4l1.3 1.5H2.7zM6.7 14.3h2.6")],
  configuration: [line("M4 1.5h5.5L13 5v9.5H4zM9.5 1.5V5H13M6.3 8h4.4M6.3 11h4.4")],
  health: [line("M1.5 8.5h3l1.8-4.5 3 8.5 1.9-4h3.3")],
  // The rest
  search: [ring(4.5, 7, 7), line("M10.5 10.5L14 14")],
  sun: [ring(3), line("M8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3.05 3.05l1.06 1.06M11.89 11.89l1.06 1.06M3.05 12.95l1.06-1.06M11.89 4.11l1.06-1.06")],
  moon: [line("M13.5 9.8A6 6 0 0 1 6.2 2.5a6 6 0 1 0 7.3 7.3z")],
  auto: [ring(5.5), area("M8 2.5a5.5 5.5 0 0 1 0 11z")],
  close: [line("M4 4l8 8M12 4l-8 8")],
  check: [line("M3 8.5l3.3 3.3L13 4.8")],
  warning: [line("M8 2L14.8 13.8H1.2zM8 6.3v3.5M8 11.8v0.1")],
  critical: [line("M5.3 1.5h5.4l3.8 3.8v5.4l-3.8 3.8H5.3l-3.8-3.8V5.3zM8 4.8v4M8 11.1v0.1")],
  info: [ring(6.2), line("M8 7.3v4M8 4.8v0.1")],
  copy: [line("M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3")],
  open: [line("M6 3l5 5-5 5")],
  down: [line("M3.5 6l4.5 4.5L12.5 6")],
  up: [line("M3.5 10.5L8 6l4.5 4.5")],
  map: [line("M2.5 2.5h4v4h-4zM9.5 2.5h4v4h-4zM2.5 9.5h4v4h-4zM9.5 9.5h4v4h-4z")],
  list: [line("M2.5 4h11M2.5 8h11M2.5 12h11")],
  clock: [ring(6), line("M8 4.5V8l2.5 1.5")],
  cordon: [ring(6), line("M3.8 12.2l8.4-8.4")],
  unready: [line("M8 2.5v5"), line("M4.5 4.7a5 5 0 1 0 7 0")],
  hold: [line("M5.5 3v10M10.5 3v10")],
  key: [line("M2 4h12v8H2zM4.5 9.5h7M4.5 6.5h0.1M7 6.5h0.1M9.5 6.5h0.1M11.5 6.5h0.1")],
  link: [line("M6.5 9.5l3-3M7 5l1.5-1.5a2.8 2.8 0 0 1 4 4L11 9M9 11l-1.5 1.5a2.8 2.8 0 0 1-4-4L5 7")],
  download: [line("M8 2v8M4.8 7L8 10.2 11.2 7M2.5 13.5h11")],
  refresh: [line("M13.5 8A5.5 5.5 0 1 1 11.8 4M12.5 1.5V4.5H9.5")],
  unknown: [ring(6), line("M6.3 6.3a1.8 1.8 0 1 1 2.5 1.6c-.6.3-.8.6-.8 1.3M8 11.3v0.1")],
};
