// Who is signed in: the person, the rights, and the page on which a key is pasted.

import { html, signal, useEffect, useId, useState } from "./view.js";
import { ApiError, get, pageKey, post, setPageKey } from "./api.js";
import { Icon } from "./icons.js";
import { Problem } from "./load.js";
import { page } from "./page.js";
import { t } from "./text.js";

/**
 * @typedef {object} Me
 * @property {string} user
 * @property {string[]} scopes
 */

/** The person; null before it is known, false if signed out. */
export const me = signal(/** @type {Me | null | false} */ (null));
/** Why the person is unknown although a session was there. */
export const ended = signal(false);
/** Why the link in the address did not open the page; "" if it did, or there was none. */
const refused = signal("");

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
async function login(credential) {
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

/** A person's own machine has no keys: another link of the terminal opens the page. */
export function SignedOut() {
  useEffect(() => {
    document.title = `${t("out.title")} – interlock`;
  }, []);
  const why = /** @type {any} */ (refused.value || (ended.value ? "out.ended" : "out.first"));
  return html`<main class="login">
    <div class="box">
      <div class="brand"><${Icon} name="logo" />interlock</div>
      <h1>${t("out.title")}</h1>
      <p role=${refused.value ? "alert" : null}>${t(why)}</p>
      <pre>interlock web --link</pre>
      <p class="muted">${t("out.enter")}</p>
    </div>
  </main>`;
}

/**
 * The page on which a key is pasted.
 * @param {{path: string}} props Where the server says who is signed in.
 */
export function Login({ path }) {
  const id = useId();
  const [key, setKey] = useState("");
  const [problem, setProblem] = useState("");
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [issuers, setIssuers] = useState(/** @type {{issuer: string, name: string}[]} */ ([]));
  useEffect(() => {
    document.title = `${t("login.title")} – interlock`;
    get("/api/login").then((found) => setIssuers(found.issuers), () => undefined); // a key still works
  }, []);

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    setError(null);
    if (!key.trim()) {
      setProblem(t("login.empty"));
      return;
    }
    setBusy(true);
    setProblem("");
    try {
      await login({ key: key.trim() });
      setKey("");
      ended.value = false;
      await begin(path);
    } catch (failed) {
      if (!(failed instanceof ApiError)) throw failed;
      if (failed.status === 401) setProblem(t("login.wrong"));
      else setError(failed);
    } finally {
      setBusy(false);
    }
  }

  return html`<main class="login">
    <form class="box" onSubmit=${submit}>
      <div class="brand"><${Icon} name="logo" />interlock</div>
      <h1>${t("login.title")}</h1>
      ${refused.value && html`<div class="note tone-asking" role="status">${t(/** @type {any} */ (refused.value))}</div>`}
      ${ended.value && html`<div class="note tone-asking" role="status">${t("login.ended")}</div>`}
      ${issuers.map(
        ({ issuer, name }) => html`<a class="button main deciding" href=${issuerPath(issuer)}>${t("login.at", { name })}</a>`,
      )}
      ${issuers.length > 0 && html`<p class="muted small">${t("login.or")}</p>`}
      <div class="field">
        <label for=${id}>${t("login.key")}</label>
        <input
          id=${id}
          class="input mono"
          type="password"
          autocomplete="off"
          spellcheck="false"
          value=${key}
          aria-invalid=${String(Boolean(problem))}
          aria-describedby=${`${id}-hint`}
          onInput=${(/** @type {Event} */ event) => setKey(/** @type {HTMLInputElement} */ (event.currentTarget).value)}
        />
        <span class="hint" id=${`${id}-hint`}>${t("login.hint")}</span>
        ${problem && html`<span class="problem" role="alert">${problem}</span>`}
      </div>
      ${error && html`<${Problem} error=${error} />`}
      <button class=${`button deciding ${issuers.length ? "" : "main"}`} disabled=${busy}>${t("login.do")}</button>
    </form>
  </main>`;
}

/** @param {string} issuer */
function issuerPath(issuer) {
  const here = location.pathname.slice(page.base.length) + location.search;
  const to = here.startsWith("/login") ? (page.board ? "/gateway" : "/") : here;
  return `${page.base}/login/begin?${new URLSearchParams({ issuer, to })}`;
}
