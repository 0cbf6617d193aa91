// The frame of every page: side, head, body, panel; the menu of narrow screens; the theme.

import { html, useEffect, useErrorBoundary, useState } from "./view.js";
import { Sheet } from "./dialog.js";
import { Icon } from "./icons.js";
import { t } from "./text.js";

/**
 * @param {{side: any, panel?: any, closePanel?: () => void, children?: any}} props
 *   On a narrow screen the panel is a sheet, closed by `closePanel`.
 */
export function Frame({ side, panel, closePanel, children }) {
  const isNarrow = useMedia("(max-width: 1099px)");
  return html`<div class=${panel ? "frame with-panel" : "frame"}>
    <div class="side">${side}</div>
    <main class="main">${children}</main>
    ${panel && !isNarrow && html`<aside class="panel">${panel}</aside>`}
    ${panel &&
    isNarrow &&
    html`<${Sheet} title=${t("menu")} end close=${() => closePanel?.()}><div class="panel">${panel}</div><//>`}
  </div>`;
}

/**
 * The line over a page: its title, facts about it, and what can be done.
 * @param {{title: any, about?: any, side: any, children?: any}} props
 *   A narrow window shows `side` as a sheet.
 */
export function Head({ title, about, side, children }) {
  const [isOpen, setOpen] = useState(false);
  return html`<header class="head">
    <button
      type="button"
      class="button plain only menu-button"
      aria-label=${t("menu")}
      aria-expanded=${String(isOpen)}
      onClick=${() => setOpen(true)}
    >
      <${Icon} name="menu" />
    </button>
    <h1>${title}</h1>
    ${about && html`<span class="about">${about}</span>`}
    <div class="end">${children}</div>
    ${isOpen &&
    html`<${Sheet} title=${t("menu")} close=${() => setOpen(false)}>
      <div class="side" onClick=${(/** @type {MouseEvent} */ event) => {
        if (/** @type {Element} */ (event.target).closest("a")) setOpen(false);
      }}>${side}</div>
    <//>`}
  </header>`;
}

/**
 * The name of the product and of the part.
 * @param {{href: string, place?: string}} props
 */
export function Brand({ href, place }) {
  return html`<a class="brand" href=${href}
    ><${Icon} name="logo" />interlock${place && html`<span class="place">${place}</span>`}</a
  >`;
}

/** A choice of the theme and, once something has waited, of notifications. @param {{bell?: boolean}} props */
export function ThemeChoice({ bell = localStorage.notify }) {
  const [notify, setNotify] = useState(/** @type {{Bell: any} | null} */ (null));
  useEffect(() => {
    const wait = () => addEventListener("waiting", load, { once: true });
    const load = () => void import("./notify.js").then(setNotify, wait); // wait if it is offline
    if (bell) load();
    else wait();
  }, []);
  const [theme, setTheme] = useState(() => localStorage.getItem("theme") ?? "system");
  /** @param {string} chosen */
  function choose(chosen) {
    setTheme(chosen);
    if (chosen === "system") {
      localStorage.removeItem("theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("theme", chosen);
      document.documentElement.dataset.theme = chosen;
    }
  }
  return html`<select
    aria-label=${t("theme")}
    value=${theme}
    onChange=${(/** @type {Event} */ event) => choose(/** @type {HTMLSelectElement} */ (event.currentTarget).value)}
  >
    <option value="system">${t("theme.system")}</option>
    <option value="light">${t("theme.light")}</option>
    <option value="dark">${t("theme.dark")}</option>
  </select>${notify && html`<${notify.Bell} />`}`;
}

/**
 * What is drawn in it may fail without taking the rest of the page with it.
 * @param {{children?: any}} props
 */
export function Guarded({ children }) {
  const [error, reset] = useErrorBoundary();
  if (!error) return children;
  return html`<div class="note tone-failed" role="alert">
    <${Icon} name="warning" />
    <div class="grow">${t("error.page", { message: String(error?.message ?? error) })}</div>
    <button class="link" onClick=${reset}>${t("retry")}</button>
  </div>`;
}

/** @param {string} query */
export function useMedia(query) {
  const [fits, setFits] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const watched = matchMedia(query);
    const changed = () => setFits(watched.matches);
    watched.addEventListener("change", changed);
    return () => watched.removeEventListener("change", changed);
  }, [query]);
  return fits;
}
