// Who is signed in: the person and the rights.

import { html, signal, useEffect, useState } from "./view.js";
import { ApiError, get, pageKey, post, setPageKey } from "./api.js";
import { page } from "./page.js";

/**
 * @typedef {object} Me
 * @property {string} user
 * @property {string[]} scopes
 * @property {string} [traces] The URL of a trace, with `{trace_id}`.
 */

/** The person; null before it is known, false if signed out. */
export const me = signal(/** @type {Me | null | false} */ (null));
/** Why the person is unknown although a session was there. */
export const ended = signal(false);
/** Why the link in the address did not open the page; "" if it did, or there was none. */
export const refused = signal("");

/** @param {string} scope */
export function may(scope) {
  const found = me.value;
  return Boolean(found) && /** @type {Me} */ (found).scopes.some((each) => covers(each, scope));
}

/** @param {string} granted @param {string} wanted */
function covers(granted, wanted) {
  if (granted === wanted || granted === "*") return true;
  return granted.endsWith("*") && wanted.startsWith(granted.slice(0, -1));
}

/** @returns {"user" | "auditor" | "operator" | "admin"} */
export function role() {
  if (may("admin:write")) return "admin";
  if (may("admin:approve")) return "operator";
  return may("admin:read") ? "auditor" : "user";
}

/**
 * Find out who is signed in. A one-time code in the address is used up first.
 * @param {string} path Where the server says it.
 */
export async function begin(path) {
  const code = location.hash.slice(1);
  if (/^[\w-]{20,64}$/.test(code)) {
    history.replaceState(null, "", location.pathname + location.search);
    try {
      await login({ code });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // an old session may still be there
      refused.value = error.reason === "code_used" ? "link.used" : "link.unknown";
    }
  }
  try {
    me.value = await get(path);
  } catch (error) {
    if (!(error instanceof ApiError) || (error.status !== 401 && error.status !== 403)) throw error;
    ended.value = pageKey() !== null;
    setPageKey(null);
    me.value = false;
  }
}

/** @param {{key?: string, code?: string}} credential */
export async function login(credential) {
  const opened = await post("/api/login", credential);
  setPageKey(opened.pageKey);
}

/** End the session here and at the server. */
export async function signOut() {
  try {
    await post("/api/logout");
  } finally {
    setPageKey(null);
    ended.value = false;
    me.value = false;
  }
}

/**
 * The page for somebody who is not signed in, loaded when it is needed.
 * @param {{path: string}} props Where the server says who is signed in.
 */
export function Login({ path }) {
  const [found, setFound] = useState(/** @type {typeof import("./login.js") | null} */ (null));
  useEffect(() => void import("./login.js").then(setFound), []);
  return found && (page.local ? html`<${found.SignedOut} />` : html`<${found.Form} path=${path} />`);
}
