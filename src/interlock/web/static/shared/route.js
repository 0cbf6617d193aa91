// The address of the page: which screen it names, and moving without loading the page again.

import { signal } from "./view.js";

/** The path and the query. */
export const place = signal(here());

function here() {
  return { path: location.pathname, query: location.search };
}

addEventListener("popstate", () => {
  place.value = here();
});

/**
 * Navigate to an address of this site.
 * @param {string} to
 * @param {{replace?: boolean}} [options]
 */
export function go(to, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"](null, "", to);
  place.value = here();
}

/**
 * Follow links without loading the page again, where `takes` says that this page has the screen.
 * @param {(path: string) => boolean} takes
 */
export function follow(takes) {
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest("a");
    if (!link || event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    if (link.target || link.origin !== location.origin || link.hasAttribute("download")) return;
    if (!takes(link.pathname)) return;
    event.preventDefault();
    go(link.pathname + link.search);
    document.querySelector(".body")?.scrollTo(0, 0);
  });
}

/**
 * Return the values that a path has for the names of a pattern; null if it does not fit.
 * @param {string} pattern Such as "/gateway/keys/:id".
 * @param {string} path
 * @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.replace(/\/$/, "").split("/");
  if (wanted.length !== given.length) return null;
  /** @type {Record<string, string>} */
  const found = {};
  for (const [at, part] of wanted.entries()) {
    const value = given[at] ?? "";
    if (part.startsWith(":")) {
      try {
        found[part.slice(1)] = decodeURIComponent(value);
      } catch {
        return null;
      }
    } else if (part !== value) return null;
  }
  return found;
}
