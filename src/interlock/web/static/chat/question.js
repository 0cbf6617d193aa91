// What a server asks during a call: a form, or an address to open.

import { isNumber, typed } from "../shared/exact.js";
import { Icon } from "../shared/icons.js";
import { Foreign, marked } from "../shared/marks.js";
import { html, useId, useState } from "../shared/view.js";
import { reply } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Question} Asked */

/** @param {{of: import("../vendor/signals.js").Signal<Asked>}} props */
export function Question({ of }) {
  const asked = of.value;
  if (asked.action) {
    return html`<p class="line-note"><span>${t(asked.action === "accept" ? "question.accept" : asked.action === "decline" ? "question.decline.done" : "question.cancel", { server: asked.server })}</span></p>`;
  }
  return html`<article class="call question" data-question=${asked.key} data-state="asking" aria-label=${t("question.by", { server: asked.server })}>
    <div class="call-head">
      <span class="chip tone-asking"><${Icon} name="question" />${t("question.chip")}</span>
      <strong>${t("question.by", { server: asked.server })}</strong>
    </div>
    <div class="call-body">
      <p><${Foreign} text=${asked.message} /></p>
      ${asked.mode === "url" ? html`<${Open} asked=${asked} />` : html`<${Form} asked=${asked} />`}
    </div>
  </article>`;
}

/** @param {Asked} asked @param {"accept" | "decline" | "cancel"} action @param {any} [content] */
function answer(asked, action, content) {
  reply({ type: "answer", question_id: asked.key, action, ...(content === undefined ? {} : { content }) });
}

/** @param {{asked: Asked}} props */
function Open({ asked }) {
  let target = null;
  try {
    target = new URL(asked.url ?? "");
  } catch {
    target = null;
  }
  if (target === null || !["http:", "https:"].includes(target.protocol)) {
    return html`<p class="problem">${t("question.bad")}</p>
      <div class="decide"><button type="button" class="button deciding" onClick=${() => answer(asked, "decline")}>${t("question.decline")}</button></div>`;
  }
  const { href, host } = target;
  return html`<p class="small">${t("question.host")} <strong class="mono">${marked(host)}</strong></p>
    <pre class="json">${marked(href)}</pre>
    <div class="decide">
      <a class="button main deciding" href=${href} target="_blank" rel="noopener noreferrer" onClick=${() => answer(asked, "accept")}>
        <${Icon} name="link" />${t("question.open", { host })}
      </a>
      <button type="button" class="button deciding" onClick=${() => answer(asked, "decline")}>${t("question.decline")}</button>
    </div>`;
}

/** @param {any} field @returns {{value: any, title: string}[]} */
function choicesOf(field) {
  const of = field.items ?? field;
  const titled = of.oneOf ?? of.anyOf;
  if (titled) return titled.map((/** @type {any} */ each) => ({ value: each.const, title: String(each.title ?? each.const) }));
  const names = of.enumNames ?? of.enum ?? [];
  return (of.enum ?? []).map((/** @type {any} */ value, /** @type {number} */ at) => ({ value, title: String(names[at] ?? value) }));
}

/** @param {{asked: Asked}} props */
function Form({ asked }) {
  /** @type {[string, any][]} */
  const fields = Object.entries(asked.schema?.properties ?? {});
  const required = asked.schema?.required ?? [];
  const [values, setValues] = useState(
    /** @type {Record<string, any>} */ (
      Object.fromEntries(fields.filter(([, field]) => field.default !== undefined).map(([name, field]) => [name, field.default]))
    ),
  );
  const [problems, setProblems] = useState(/** @type {Record<string, string>} */ ({}));
  /** @param {string} name @param {any} value */
  const set = (name, value) => setValues({ ...values, [name]: value });
  /** @param {Event} event */
  function submit(event) {
    event.preventDefault();
    /** @type {Record<string, string>} */
    const found = {};
    /** @type {Record<string, unknown>} */
    const given = {};
    for (const [name, field] of fields) {
      try {
        const value = isNumeric(field) ? numberOf(values[name]) : values[name];
        if (value !== "" && value !== undefined) given[name] = value;
        else if (required.includes(name)) found[name] = t("required");
      } catch (error) {
        found[name] = /** @type {Error} */ (error).message;
      }
    }
    setProblems(found);
    if (Object.keys(found).length === 0) answer(asked, "accept", given);
  }
  return html`<form class="stack" onSubmit=${submit} novalidate>
    ${fields.map(
      ([name, field]) => html`<${Field}
        key=${name}
        name=${name}
        field=${field}
        value=${values[name]}
        set=${(/** @type {any} */ value) => set(name, value)}
        isRequired=${required.includes(name)}
        problem=${problems[name] ?? ""}
      />`,
    )}
    <div class="decide">
      <button class="button main deciding">${t("question.send")}</button>
      <button type="button" class="button deciding" onClick=${() => answer(asked, "decline")}>${t("question.decline")}</button>
    </div>
  </form>`;
}

/** @type {Record<string, string>} */
const TYPES = { email: "email", uri: "url", date: "date", "date-time": "datetime-local" };

/** @param {any} field */
const isNumeric = (field) => field.type === "integer" || field.type === "number";

/** The number that a text is. @param {any} given @throws {Error} It is none, or an answer would not keep it. */
function numberOf(given) {
  if (typeof given !== "string" || given.trim() === "") return given;
  try {
    const found = typed(given);
    if (isNumber(found)) return found;
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
  }
  throw new Error(t("question.number"));
}

/** @param {{name: string, field: any, value: any, set: (value: any) => void, isRequired: boolean, problem: string}} props */
function Field({ name, field, value, set, isRequired, problem }) {
  const id = useId();
  const choices = choicesOf(field);
  const title = field.title ?? name;
  const hint = field.description;
  const about = { id, "aria-required": String(isRequired), "aria-invalid": String(problem !== ""), "aria-describedby": hint ? `${id}-hint` : null };
  let control;
  if (field.type === "array") {
    const chosen = Array.isArray(value) ? value : [];
    control = html`<div role="group" aria-label=${title}>
      ${choices.map(
        (each) => html`<label class="check">
          <input
            type="checkbox"
            checked=${chosen.includes(each.value)}
            onChange=${(/** @type {any} */ event) =>
              set(event.currentTarget.checked ? [...chosen, each.value] : chosen.filter((/** @type {any} */ other) => other !== each.value))}
          />
          <${Foreign} text=${each.title} />
        </label>`,
      )}
    </div>`;
  } else if (choices.length) {
    control = html`<select ...${about} value=${value === undefined ? "" : String(value)} onChange=${(/** @type {any} */ event) => set(choices.find((each) => String(each.value) === event.currentTarget.value)?.value)}>
      <option value="">${t("choose")}</option>
      ${choices.map((each) => html`<option value=${String(each.value)}>${each.title}</option>`)}
    </select>`;
  } else if (field.type === "boolean") {
    control = html`<label class="check">
      <input type="checkbox" ...${about} checked=${Boolean(value)} onChange=${(/** @type {any} */ event) => set(event.currentTarget.checked)} />
      ${t("yes")}
    </label>`;
  } else {
    control = html`<input
      class="input"
      ...${about}
      type=${TYPES[field.format] ?? "text"}
      inputmode=${isNumeric(field) ? "decimal" : null}
      maxlength=${field.maxLength ?? null}
      autocomplete="off"
      value=${String(value ?? "")}
      onInput=${(/** @type {any} */ event) => set(event.currentTarget.value)}
    />`;
  }
  return html`<div class="field">
    <label for=${id}>${marked(title)}${isRequired ? "" : html` <span class="muted">${t("optional")}</span>`}</label>
    ${control}
    ${hint && html`<span class="hint" id=${`${id}-hint`}>${marked(hint)}</span>`}
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}
  </div>`;
}
