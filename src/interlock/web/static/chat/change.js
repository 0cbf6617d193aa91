// Other arguments for a call that waits: only what is edited changes, the rest stays as it is.

import { post } from "../shared/api.js";
import { isBranch, stringify, typed } from "../shared/exact.js";
import { below } from "../shared/fold.js";
import { JsonView } from "../shared/json.js";
import { isInvisible, marked } from "../shared/marks.js";
import { html, useId, useState } from "../shared/view.js";
import { attempt, reply } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Card} Card */
/** @typedef {{text: string, isJson: boolean}} Edited */

/** A text that a field shows as it is; another one is edited as JSON. @param {unknown} value */
const isPlain = (value) => typeof value === "string" && ![...value].some(isInvisible);

/** @param {unknown} value @returns {Edited} */
function editable(value) {
  if (isPlain(value)) return { text: String(value), isJson: false };
  // Characters that cannot be seen are written as escapes.
  const text = [...stringify(value, 2)].map((each) => (isInvisible(each) ? escaped(each) : each)).join("");
  return { text, isJson: true };
}

/** @param {string} character */
function escaped(character) {
  return Array.from({ length: character.length }, (_, at) => `\\u${character.charCodeAt(at).toString(16).padStart(4, "0")}`).join("");
}

/** @param {{card: Card, approval: NonNullable<Card["approval"]>, close: () => void}} props */
export function Change({ card, approval, close }) {
  const [edits, setEdits] = useState(/** @type {Record<string, Edited>} */ ({}));
  const [whole, setWhole] = useState(/** @type {Edited | null} */ (null));
  const [problems, setProblems] = useState(/** @type {string[]} */ ([]));
  const given = isBranch(card.arguments) ? Object.entries(card.arguments) : [];

  /** Return the new arguments. */
  function changed() {
    if (whole) return typed(whole.text);
    return Object.fromEntries(given.map(([name, value]) => {
      const edit = edits[name];
      return [name, edit ? (edit.isJson ? typed(edit.text) : edit.text) : value];
    }));
  }
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    let made;
    try {
      made = changed();
    } catch (error) {
      setProblems([/** @type {Error} */ (error).message]);
      return;
    }
    let found = ["?"];
    const isChecked = await attempt(async () => {
      found = (await post(`/api/tools/${encodeURIComponent(card.tool)}/check`, { arguments: made })).problems;
      setProblems(found);
    });
    if (!isChecked || found.length) return;
    reply({ type: "change", approval_id: approval.id, hash: approval.hash, arguments: made });
    close();
  }
  const edit = (/** @type {string} */ name, /** @type {Edited} */ to) => setEdits({ ...edits, [name]: to });
  return html`<form class="stack tight" onSubmit=${submit}>
    ${whole
      ? html`<${Editor} label=${t("change.label")} edited=${whole} set=${setWhole} isWrong=${problems.length > 0} />`
      : given.map(([name, value]) => {
          const now = edits[name];
          if (now) return html`<${Editor} key=${name} label=${name} edited=${now} set=${(/** @type {Edited} */ to) => edit(name, to)} isWrong=${problems.length > 0} />`;
          return html`<div class="field" key=${name}>
            <div class="row"><span class="mono muted grow">${marked(name)}</span>
              <button type="button" class="link" aria-label=${t("change.edit.of", { name })} onClick=${() => edit(name, editable(value))}>${t("change.edit")}</button></div>
            <${JsonView} value=${value} open=${0} path=${below("", name)} />
          </div>`;
        })}
    <span class="hint">${t("change.hint")}</span>
    ${problems.map((each) => html`<span class="problem" role="alert">${each}</span>`)}
    <div class="decide">
      <button class="button main deciding">${t("change.do")}</button>
      <button class="button deciding" type="button" onClick=${close}>${t("cancel")}</button>
      ${!whole && html`<button type="button" class="button plain deciding" onClick=${() => setWhole(wholeOf())}>${t("change.whole")}</button>`}
    </div>
  </form>`;

  /** What is edited so far, as JSON. */
  function wholeOf() {
    try {
      return { ...editable(changed()), isJson: true };
    } catch {
      return { ...editable(card.arguments), isJson: true };
    }
  }
}

/** @param {{label: string, edited: Edited, set: (edited: Edited) => void, isWrong: boolean}} props */
function Editor({ label, edited, set, isWrong }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}><span class="mono">${marked(label)}</span>${edited.isJson && html` <span class="muted">JSON</span>`}</label>
    <textarea
      id=${id}
      class="input mono"
      rows=${Math.min(12, edited.text.split("\n").length + 1)}
      spellcheck="false"
      value=${edited.text}
      aria-invalid=${String(isWrong)}
      onInput=${(/** @type {any} */ event) => set({ ...edited, text: event.currentTarget.value })}
    ></textarea>
  </div>`;
}
