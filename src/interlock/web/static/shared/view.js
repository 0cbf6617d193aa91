// What every module draws with: Preact, its hooks, signals and templates.

import { h, render, Fragment, createContext } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export { h, render, Fragment, createContext };
export {
  useCallback,
  useContext,
  useEffect,
  useErrorBoundary,
  useId,
  useLayoutEffect,
  useMemo,
  useRef,
  useState,
} from "../vendor/hooks.js";
export { batch, computed, effect, signal, untracked, useComputed, useSignal } from "../vendor/signals.js";

/** @typedef {import("../vendor/preact.js").ComponentChildren} Children */
/** @typedef {import("../vendor/preact.js").VNode<any>} Node */

/** @type {(strings: TemplateStringsArray, ...values: any[]) => Node} */
export const html = /** @type {any} */ (htm.bind(h));

/** Draw a page in place of the empty frame of its document. @param {Children} content */
export function mount(content) {
  const root = /** @type {HTMLElement} */ (document.getElementById("app"));
  root.replaceChildren();
  render(content, root);
}
