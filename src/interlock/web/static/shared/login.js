// The page on which a key is pasted, or a login at an organisation begins.

import { ApiError, get } from "./api.js";
import { Icon } from "./icons.js";
import { Problem } from "./load.js";
import { page } from "./page.js";
import { begin, ended, login, refused } from "./session.js";
import { t } from "./text.js";
import { html, useEffect, useId, useState } from "./view.js";

/** @param {{path: string}} props Where the server says who is signed in. */
export function Form({ path }) {
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

/** @param {string} issuer */
function issuerPath(issuer) {
  const here = location.pathname + location.search;
  const to = here.startsWith("/login") ? (page.board ? "/gateway" : "/") : here;
  return `/login/begin?${new URLSearchParams({ issuer, to })}`;
}
