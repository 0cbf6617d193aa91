// Data of the server in a component: what is loaded, what is wrong, and a way to load it again.

import { html, useCallback, useEffect, useRef, useState } from "./view.js";
import { ApiError, get } from "./api.js";
import { Icon } from "./icons.js";
import { t } from "./text.js";

/**
 * @template T
 * @typedef {object} Loaded
 * @property {T | null} data What came last; kept while the next one is loaded.
 * @property {ApiError | null} error Why the last request failed.
 * @property {boolean} slow Nothing came for 150 ms, and there is nothing to show yet.
 * @property {() => Promise<void>} reload Ask again.
 */

/**
 * Load a path, and again when it changes.
 * @param {string | null} path Null for nothing.
 * @param {{every?: number}} [options] `every`: milliseconds, while the page is visible.
 * @returns {Loaded<any>}
 */
export function useLoad(path, { every = 0 } = {}) {
  const [state, setState] = useState(
    /** @type {{path: string | null, data: any, error: ApiError | null}} */ ({
      path: null,
      data: null,
      error: null,
    }),
  );
  const [slow, setSlow] = useState(false);
  const running = useRef(/** @type {AbortController | null} */ (null));

  const load = useCallback(async () => {
    if (path === null) return;
    running.current?.abort();
    const mine = new AbortController();
    running.current = mine;
    try {
      const data = await get(path, mine.signal);
      if (running.current === mine) setState({ path, data, error: null });
    } catch (error) {
      if (running.current !== mine || mine.signal.aborted) return;
      const known = error instanceof ApiError ? error : new ApiError(0, "page", String(error));
      setState((before) => ({ path, data: before.path === path ? before.data : null, error: known }));
    }
  }, [path]);

  useEffect(() => {
    setSlow(false);
    const timer = setTimeout(() => setSlow(true), 150);
    void load();
    return () => {
      clearTimeout(timer);
      running.current?.abort();
    };
  }, [load]);

  useEffect(() => {
    if (!every) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) void load();
    }, every);
    const seen = () => {
      if (!document.hidden) void load();
    };
    document.addEventListener("visibilitychange", seen);
    return () => {
      clearInterval(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [load, every]);

  return { data: state.data, error: state.error, slow: slow && !state.data, reload: load };
}

/**
 * Return the sentence for an error.
 * @param {ApiError} error
 */
export function sentence(error) {
  if (error.reason === "offline") return t("error.offline");
  if (error.status === 404 || error.reason === "insufficient_scope") return t("error.denied");
  return error.message || error.reason;
}

/**
 * What stands in the place of data that are not there.
 * @param {{of: Loaded<any>}} props
 */
export function Missing({ of }) {
  if (of.error) return html`<${Problem} error=${of.error} again=${of.reload} />`;
  if (!of.slow) return null;
  return html`<div role="status" aria-label=${t("loading")}>
    <div class="bone"></div>
    <div class="bone"></div>
    <div class="bone"></div>
  </div>`;
}

/**
 * An error with a way to try again.
 * @param {{error: ApiError, again?: () => unknown}} props
 */
export function Problem({ error, again }) {
  const may = again && error.status !== 403 && error.status !== 404;
  return html`<div class="note tone-failed" role="alert">
    <${Icon} name="warning" />
    <div class="grow">
      ${sentence(error)}
      ${error.reference && html` <span class="mono small">${t("error.reference", { reference: error.reference })}</span>`}
    </div>
    ${may && html`<button class="link" onClick=${again}>${t("retry")}</button>`}
  </div>`;
}
