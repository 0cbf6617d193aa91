// A request of the wire, changed and sent again.

import { ApiError } from "../shared/api.js";
import { stringify, typed } from "../shared/exact.js";
import { Dialog } from "../shared/dialog.js";
import { Problem } from "../shared/load.js";
import { html, useId, useState } from "../shared/view.js";
import { Result } from "./result.js";
import { send } from "./state.js";
import { t } from "./text.js";
import { edited } from "./wire.js";

export default function Editor() {
  const given = edited.value;
  const id = useId();
  const [method, setMethod] = useState(given?.method ?? "");
  const [text, setText] = useState(() => stringify(given?.params ?? {}, 2));
  const [wrong, setWrong] = useState("");
  const [busy, setBusy] = useState(false);
  const [card, setCard] = useState(/** @type {import("./types.js").Card | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const close = () => (edited.value = null);
  async function go() {
    let params;
    try {
      params = typed(text || "{}");
    } catch (failed) {
      setWrong(failed instanceof SyntaxError ? t("form.json.bad", { message: failed.message }) : /** @type {Error} */ (failed).message);
      return;
    }
    setWrong("");
    setError(null);
    setCard(null);
    setBusy(true);
    try {
      setCard(await send(method, params, { checks: false }));
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError(0, "page", String(failed)));
    } finally {
      setBusy(false);
    }
  }
  return html`<${Dialog} title=${t("wire.edit")} close=${close} class="ask wide">
    <div class="field">
      <label for=${`${id}-method`}>${t("edit.method")}</label>
      <input id=${`${id}-method`} class="input mono" value=${method} onInput=${(/** @type {any} */ event) => setMethod(event.currentTarget.value)} />
    </div>
    <div class="field">
      <label for=${`${id}-params`}>${t("edit.params")}</label>
      <textarea id=${`${id}-params`} class="input mono" rows="10" spellcheck=${false} aria-invalid=${String(wrong !== "")} value=${text} onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} />
      ${wrong && html`<span class="problem" role="alert">${wrong}</span>`}
      <span class="hint">${t("edit.hint")}</span>
    </div>
    ${error && html`<${Problem} error=${error} />`}
    ${card && html`<${Result} key=${card.call} card=${card} />`}
    <div class="actions">
      <button type="button" class="button" onClick=${close}>${t("close")}</button>
      <button type="button" class="button main" disabled=${busy} onClick=${go}>${t("edit.send")}</button>
    </div>
  <//>`;
}
