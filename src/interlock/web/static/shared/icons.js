// Icons of our own: strokes on a grid of 24.

import { h } from "./view.js";

const PATHS = {
  logo: "M13 3H8a5 5 0 0 0-5 5v8a5 5 0 0 0 5 5h5M11 21h5a5 5 0 0 0 5-5V8a5 5 0 0 0-5-5M9 12h6",
  overview: "M4 4h6v6H4zM14 4h6v6h-6zM4 14h6v6H4zM14 14h6v6h-6z",
  server: "M4 4h16v7H4zM4 13h16v7H4zM8 7.5h.01M8 16.5h.01",
  tool: "M14.5 6.5a4 4 0 0 1 5-1.5l-2.5 2.5 1.5 1.5L21 6.5a4 4 0 0 1-5.5 4.8L7 20l-3-3 8.7-8.5a4 4 0 0 1 1.8-2z",
  key: "M8 15a4 4 0 1 0 0-.01M11 12.5 20 4M16 8l3 3M13.5 10.3l2 2",
  pause: "M9 6v12M15 6v12",
  list: "M4 6h16M4 12h16M4 18h10",
  pin: "M9 4h6l-1 6 3 3v1H7v-1l3-3zM12 14v6",
  gauge: "M4 17a8.5 8.5 0 1 1 16 0M12 15l4-5",
  chat: "M4 5h16v11H9l-5 4z",
  wire: "M4 8h14l-3-3M20 16H6l3 3",
  person: "M12 12a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21c1-4 4-6 8-6s7 2 8 6",
  check: "M5 12.5l4.5 4.5L19 7.5",
  cross: "M6 6l12 12M18 6 6 18",
  lock: "M6 11h12v9H6zM8.5 11V8a3.5 3.5 0 0 1 7 0v3",
  turning: "M20 12a8 8 0 1 1-2.5-5.8M20 4v4h-4",
  square: "M7 7h10v10H7z",
  clock: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v5l3 2",
  warning: "M12 4 2.5 20h19zM12 10v4M12 17h.01",
  eye: "M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12zM12 14.5a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5z",
  right: "M9 5l7 7-7 7",
  down: "M5 9l7 7 7-7",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  more: "M4 12h1.500M11.200 12h1.500M18.500 12H20",
  menu: "M4 7h16M4 12h16M4 17h16",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  export: "M12 15V4M8 8l4-4 4 4M4 14v6h16v-6",
  clip: "M20 11.5 12 19.5a5 5 0 0 1-7-7l8.5-8.5a3.3 3.3 0 0 1 4.7 4.7L9.7 17a1.7 1.7 0 0 1-2.4-2.4l7.5-7.4",
  send: "M4 12h15M13 6l6 6-6 6",
  offline: "M3 3l18 18M5 10a11 11 0 0 1 4-2.4M12 7c3 0 5.400 1 7 3M8 14a6 6 0 0 1 6.500-1.300M12 18h.01",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500 19 19M19 5l-1.500 1.500M6.500 17.500 5 19",
  play: "M7 5l12 7-12 7z",
  file: "M6 3h8l4 4v14H6zM14 3v5h4",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  question: "M9 9a3 3 0 1 1 4.500 2.600c-1 .6-1.500 1.200-1.500 2.400M12 17.500h.01",
  signout: "M14 4h5v16h-5M4 12h11M11 8l4 4-4 4",
};

/** @typedef {keyof typeof PATHS} IconName */

/**
 * An icon. Beside a word it is hidden from screen readers; alone it needs a `label`.
 * @param {{name: IconName, label?: string, class?: string}} props
 */
export function Icon({ name, label, class: more = "" }) {
  const access = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return h("svg", { class: `icon ${more}`, viewBox: "0 0 24 24", ...access }, [
    h("path", { d: PATHS[name] }),
  ]);
}
