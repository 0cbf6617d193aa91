// Dialogs: the browser's own element, which keeps the focus and closes with Escape.

import { html, useEffect, useId, useRef, useState } from "./view.js";
import { ApiError } from "./api.js";
import { Problem } from "./load.js";
import { t } from "./text.js";

/**
 * A dialog that is open while it is drawn.
 * @param {{title: string, close: () => void, class?: string, children?: any}} props
 */
export function Dialog({ title, close, class: kind = "ask", children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  const id = useId();
  useEffect(() => {
    const before = document.activeElement;
    element.current?.showModal();
    return () => {
      // This runs a moment after the dialog is gone: what took the focus since then keeps it.
      const isFree = document.activeElement === document.body;
      if (isFree && before instanceof HTMLElement && before.isConnected) before.focus();
    };
  }, []);
  return html`<dialog
    class=${kind}
    ref=${element}
    aria-labelledby=${id}
    onClose=${close}
    onClick=${(/** @type {MouseEvent} */ event) => {
      if (event.target === element.current && kind.includes("sheet")) close();
    }}
  >
    <div class="form">
      <h2 id=${id} class=${kind.includes("sheet") ? "hidden" : ""}>${title}</h2>
      ${children}
    </div>
  </dialog>`;
}

/**
 * A side of the page as a sheet over it.
 * @param {{title: string, close: () => void, end?: boolean, children?: any}} props
 */
export function Sheet({ title, close, end = false, children }) {
  const element = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useEffect(() => element.current?.showModal(), []);
  return html`<dialog
    class=${end ? "sheet end" : "sheet"}
    ref=${element}
    aria-label=${title}
    onClose=${close}
    onClick=${(/** @type {MouseEvent} */ event) => event.target === element.current && close()}
  >
    ${children}
  </dialog>`;
}

/**
 * A question before something is done. What failed is shown in it.
 * @param {{title: string, does: string, danger?: boolean, act: () => Promise<unknown>, close: () => void, children?: any}} props
 */
export function Confirm({ title, does, danger = false, act, close, children }) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  async function run() {
    setBusy(true);
    setError(null);
    try {
      await act();
      close();
    } catch (problem) {
      setError(problem instanceof ApiError ? problem : new ApiError(0, "page", String(problem)));
      setBusy(false);
    }
  }
  return html`<${Dialog} title=${title} close=${close}>
    ${children} ${error && html`<${Problem} error=${error} />`}
    <div class="actions">
      <button class="button" type="button" onClick=${close}>${t("cancel")}</button>
      <button class=${`button ${danger ? "danger" : "main"}`} type="button" disabled=${busy} onClick=${run}>
        ${does}
      </button>
    </div>
  <//>`;
}

/**
 * A button that copies a text.
 * @param {{text: string, label?: string, class?: string}} props
 */
export function Copy({ text, label, class: kind = "button plain" }) {
  const [done, setDone] = useState(false);
  async function copy() {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 2000);
  }
  return html`<button type="button" class=${kind} onClick=${copy}>
    ${done ? t("copied") : (label ?? t("copy"))}
  </button>`;
}
