// A form for a JSON Schema. Each field can be edited as JSON instead, and fails alone.

import { stringify, typed } from "../shared/exact.js";
import { Guarded } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { Foreign, marked } from "../shared/marks.js";
import { createContext, html, useContext, useEffect, useLayoutEffect, useRef, useState } from "../shared/view.js";
import {
  areMany,
  initial,
  isObject,
  limitsOf,
  member,
  placeOf,
  same,
  shapeOf,
  titleOf,
  variantOf,
  withMember,
} from "./model.js";
import { t } from "./text.js";

const MANY = 60; // optional fields that are shown at once
const ROWS = 50; // items that are shown at once

/**
 * @typedef {object} FieldProps
 * @property {string} name
 * @property {any} schema
 * @property {any} root
 * @property {any} value undefined if the field is left out.
 * @property {(value: any) => void} set
 * @property {(string | number)[]} path
 * @property {boolean} required
 * @property {Map<string, string[]>} problems By place.
 * @property {() => void} [remove] Takes the whole row away.
 */

/**
 * All arguments of a tool, or all members of an answer.
 * @param {{schema: any, value: any, set: (value: any) => void, problems: Map<string, string[]>}} props
 */
export function Form({ schema, value, set, problems }) {
  const shape = shapeOf(schema, schema, value);
  if (shape.kind === "object") {
    return html`<div class="form"><${Members} shape=${shape} root=${schema} value=${value} set=${set} path=${[]} problems=${problems} /></div>`;
  }
  const isEmpty = shape.kind === "json" && shape.why === "free" && !shape.schema.patternProperties;
  return html`<div class="form">
    ${isEmpty && html`<p class="muted small">${t("form.free")}</p>`}
    <${Field} name=${t("form.all")} schema=${schema} root=${schema} value=${value} set=${set} path=${[]} required problems=${problems} />
  </div>`;
}

/** @param {FieldProps} props */
export function Field(props) {
  const { schema, root, value, path } = props;
  const [asJson, setAsJson] = useState(false);
  const shape = shapeOf(schema, root, value, path.length);
  const isJson = asJson || shape.kind === "json";
  const inner = { ...props, shape };
  return html`<${Guarded}>
    <div class="field schema-field" data-field=${placeOf(path)} data-shape=${isJson ? "json" : shape.kind}>
      <${Title} ...${inner} asJson=${asJson} setAsJson=${shape.kind === "json" ? null : setAsJson} />
      ${isJson ? html`<${JsonField} ...${inner} />` : html`<${Control} ...${inner} />`}
      <${Notes} ...${inner} />
    </div>
  <//>`;
}

/** The id of a field's control, which its label and its notes name. @param {(string | number)[]} path */
const idOf = (path) => `f-${placeOf(path).replace(/[^\w-]/g, "_")}`;

/** @param {any} props */
function Title({ name, schema, shape, value, path, required, set, remove, asJson, setAsJson }) {
  const isFixed = shape.kind === "const" || shape.kind === "null";
  const isGroup = !asJson && (isFixed || ["object", "array", "variants"].includes(shape.kind));
  const title = shape.schema.title ?? schema.title;
  const words = html`<span class="mono">${marked(name)}</span>${required && !remove && html`<span aria-hidden="true">${" *"}</span>`}
    ${title && title !== name && html`${" "}<span class="muted">${marked(String(title))}</span>`}`;
  return html`<div class="row title-row">
    ${isGroup ? html`<span class="label" id=${`${idOf(path)}-label`}>${words}</span>` : html`<label for=${idOf(path)}>${words}</label>`}
    <span class="grow"></span>
    ${shape.schema.deprecated === true && html`<span class="chip">${t("form.deprecated")}</span>`}
    ${setAsJson &&
    isGroup &&
    !isFixed &&
    html`<button type="button" class="link small" aria-pressed="false" aria-label=${t("form.json.of", { name })} onClick=${() => setAsJson(true)}>JSON</button>`}
    ${setAsJson && asJson && html`<button type="button" class="link small" aria-label=${t("form.fields.of", { name })} onClick=${() => setAsJson(false)}>${t("form.fields")}</button>`}
    ${!required &&
    !remove &&
    value !== undefined &&
    html`<button type="button" class="button plain only small-button" aria-label=${t("form.clear", { name })} title=${t("form.clear", { name })} onClick=${() => set(undefined)}>
      <${Icon} name="cross" />
    </button>`}
    ${remove &&
    html`<button type="button" class="button plain only small-button" aria-label=${t("form.remove", { name })} title=${t("form.remove", { name })} onClick=${remove}>
      <${Icon} name="cross" />
    </button>`}
  </div>`;
}

/** @param {any} props */
function Notes({ shape, path, problems, value, schema }) {
  const limits = limitsOf(shape.schema).map(([key, values]) => t(/** @type {any} */ (key), values));
  const about = shape.schema.description ?? schema.description;
  const why = shape.kind === "json" && shape.why ? t(/** @type {any} */ (`form.why.${shape.why}`)) : "";
  const hint = [why, ...limits].filter(Boolean).join("; ");
  const wrong = problems.get(placeOf(path)) ?? [];
  const shown = wrong.filter((/** @type {string} */ each) => each !== "required" || value === undefined);
  return html`<div id=${`${idOf(path)}-notes`}>
    ${about && html`<span class="hint about-field"><${Foreign} text=${String(about)} /></span>`}
    ${hint && html`<span class="hint">${marked(hint)}</span>`}
    ${shown.map((/** @type {string} */ each) => html`<span class="problem">${each === "required" ? t("form.required") : marked(each)}</span>`)}
  </div>`;
}

/** The attributes of a control. @param {any} props */
function access({ path, required, problems, inVariant }) {
  const id = idOf(path);
  return {
    id,
    "aria-required": String(required),
    "aria-invalid": String((problems.get(placeOf(path)) ?? []).length > 0),
    "aria-labelledby": inVariant ? `${id}-label` : null,
    "aria-describedby": `${id}-notes`,
  };
}

/** @param {any} props */
function Control(props) {
  const { shape, value, set, required } = props;
  switch (shape.kind) {
    case "object":
      return html`<${Nested} ...${props}><${Members} ...${props} /><//>`;
    case "array":
      return html`<${Nested} ...${props}><${Items} ...${props} /><//>`;
    case "variants":
      return html`<${Variants} ...${props} />`;
    case "choice":
      return html`<${Choice} ...${props} />`;
    case "number":
      return html`<${NumberField} ...${props} />`;
    case "text":
      return html`<${Text} ...${props} />`;
    case "boolean":
      return html`<${Choice} ...${props} shape=${{ ...shape, choices: [true, false] }} />`;
  }
  const fixed = shape.kind === "null" ? null : shape.schema.const;
  return html`<${Fixed} value=${value} fixed=${fixed} set=${set} required=${required} />`;
}

/** A value that cannot be another one. @param {{value: any, fixed: any, set: (value: any) => void, required: boolean}} props */
function Fixed({ value, fixed, set, required }) {
  useEffect(() => {
    if (required && !same(value, fixed)) set(fixed);
  }, [required, stringify(fixed)]);
  const text = stringify(fixed);
  if (required) return html`<code>${marked(text)}</code>`;
  return html`<label class="check"><input type="checkbox" checked=${value !== undefined} onChange=${(/** @type {any} */ event) => set(event.currentTarget.checked ? fixed : undefined)} /><code>${marked(text)}</code></label>`;
}

/** What is nested is there once it is added. @param {any} props */
function Nested({ name, value, set, schema, root, path, required, children }) {
  if (value === undefined && !required) {
    return html`<div><button type="button" class="button" onClick=${() => set(initial(schema, root, path.length) ?? {})}><${Icon} name="plus" />${t("form.add.one", { name })}</button></div>`;
  }
  return html`<fieldset class="nested" aria-labelledby=${`${idOf(path)}-label`}>${children}</fieldset>`;
}

/** @param {any} props */
function Members({ shape, root, value, set, path, problems }) {
  const [all, setAll] = useState(false);
  const latest = useRef(value);
  latest.current = value;
  const change = (/** @type {string} */ name, /** @type {any} */ part) => {
    latest.current = withMember(latest.current, name, part); // several fields may set theirs at once
    set(latest.current);
  };
  const fields = shape.fields ?? [];
  const shown = all ? fields : fields.filter((/** @type {any} */ each, /** @type {number} */ at) => each.required || at < MANY);
  const names = new Set(fields.map((/** @type {any} */ each) => each.name));
  const more = isObject(value) ? Object.keys(value).filter((each) => !names.has(each)) : [];
  return html`
    ${fields.length === 0 && more.length === 0 && !shape.others && html`<p class="muted small">${t("form.none")}</p>`}
    <div class="fields">
      ${shown.map(
        (/** @type {any} */ each) => html`<${Field}
          key=${each.name}
          ...${each}
          root=${root}
          value=${member(value, each.name)}
          set=${(/** @type {any} */ part) => change(each.name, part)}
          path=${[...path, each.name]}
          problems=${problems}
        />`,
      )}
    </div>
    ${shown.length < fields.length && html`<button type="button" class="link" onClick=${() => setAll(true)}>${t("form.more", { n: fields.length - shown.length })}</button>`}
    ${more.map(
      (name) => html`<${Field}
        key=${`+${name}`}
        name=${name}
        schema=${shape.others ?? {}}
        root=${root}
        value=${member(value, name)}
        set=${(/** @type {any} */ part) => change(name, part)}
        remove=${() => change(name, undefined)}
        path=${[...path, name]}
        required
        problems=${problems}
      />`,
    )}
    ${shape.others && html`<${AddMember} taken=${[...names, ...more]} add=${(/** @type {string} */ name) => change(name, initial(shape.others, root, path.length + 1) ?? null)} />`}
  `;
}

/** @param {{taken: string[], add: (name: string) => void}} props */
function AddMember({ taken, add }) {
  const [name, setName] = useState("");
  const may = name !== "" && !taken.includes(name);
  const go = () => {
    if (!may) return;
    add(name);
    setName("");
  };
  return html`<div class="row add-member">
    <input
      class="input mono"
      aria-label=${t("form.name")}
      placeholder=${t("form.name")}
      value=${name}
      onInput=${(/** @type {any} */ event) => setName(event.currentTarget.value)}
      onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
        if (event.key === "Enter" && !event.metaKey && !event.ctrlKey) {
          event.preventDefault();
          go();
        }
      }}
    />
    <button type="button" class="button" disabled=${!may} onClick=${go}><${Icon} name="plus" />${t("form.add")}</button>
  </div>`;
}

/** @param {any} props */
function Items({ name, shape, root, value, set, path, problems }) {
  const [shown, setShown] = useState(ROWS);
  const items = Array.isArray(value) ? value : [];
  const most = shape.schema.maxItems ?? (shape.items === null ? shape.first.length : Infinity);
  const schemaOf = (/** @type {number} */ at) => shape.first[at] ?? shape.items ?? {};
  const change = (/** @type {number} */ at, /** @type {any} */ part) => set(items.map((each, index) => (index === at ? part : each)));
  const add = () => set([...items, initial(schemaOf(items.length), root, path.length + 1) ?? null]);
  return html`
    <div class="row">
      <span class="muted small grow">${Number.isFinite(most) ? t("form.items.of", { n: items.length, most }) : t("form.items", { n: items.length })}</span>
      <button type="button" class="button" disabled=${items.length >= most} aria-label=${t("form.add.to", { name })} onClick=${add}><${Icon} name="plus" />${t("form.add")}</button>
    </div>
    ${items.slice(0, shown).map(
      (each, at) => html`<${Field}
        key=${at}
        name=${`${at + 1}`}
        schema=${schemaOf(at)}
        root=${root}
        value=${each === null ? undefined : each}
        set=${(/** @type {any} */ part) => change(at, part === undefined ? null : part)}
        remove=${() => set(items.filter((_, index) => index !== at))}
        path=${[...path, at]}
        required
        problems=${problems}
      />`,
    )}
    ${items.length > shown && html`<button type="button" class="link" onClick=${() => setShown(shown + ROWS * 4)}>${t("form.more", { n: items.length - shown })}</button>`}
  `;
}

/** @param {any} props */
function Variants(props) {
  const { name, shape, root, value, set, path, required } = props;
  const [wanted, setWanted] = useState(/** @type {number | null} */ (null));
  const found = variantOf(shape.variants, value, root);
  const at = wanted !== null && wanted < shape.variants.length ? wanted : found;
  const isSet = required || value !== undefined;
  const titles = shape.variants.map((/** @type {any} */ each, /** @type {number} */ index) => titleOf(each, root, index));
  const choose = (/** @type {number} */ index) => {
    setWanted(index);
    set(initial(shape.variants[index], root, path.length));
  };
  const many = titles.length > 5 || titles.join("").length > 60;
  return html`<div role="group" aria-labelledby=${`${idOf(path)}-label`}>
    ${many
      ? html`<select aria-label=${t("form.shape", { name })} value=${String(at)} onChange=${(/** @type {any} */ event) => choose(Number(event.currentTarget.value))}>
          ${titles.map((/** @type {string} */ each, /** @type {number} */ index) => html`<option value=${String(index)}>${each}</option>`)}
        </select>`
      : html`<div class="row wrap variants">
          ${titles.map(
            (/** @type {string} */ each, /** @type {number} */ index) => html`<button
              type="button"
              class=${index === at && (isSet || wanted !== null) ? "button chosen" : "button"}
              aria-pressed=${String(index === at && (isSet || wanted !== null))}
              onClick=${() => choose(index)}
            >
              ${marked(each)}
            </button>`,
          )}
        </div>`}
    ${(isSet || wanted !== null) && html`<${Variant} key=${at} ...${props} schema=${shape.variants[at]} />`}
  </div>`;
}

/** @param {any} props */
function Variant(props) {
  const { schema, root, value, path } = props;
  const shape = shapeOf(schema, root, value, path.length);
  const inner = { ...props, shape, required: true, inVariant: true };
  return shape.kind === "json" ? html`<${JsonField} ...${inner} />` : html`<${Control} ...${inner} />`;
}

/** @param {any} props */
function Choice(props) {
  const { shape, value, set, required } = props;
  const { choices } = shape;
  if (areMany(choices)) return html`<${JsonField} ...${props} />`;
  const at = value === undefined ? -1 : choices.findIndex((/** @type {any} */ each) => same(each, value));
  return html`<select
    ...${access(props)}
    value=${String(at)}
    onChange=${(/** @type {any} */ event) => set(choices[Number(event.currentTarget.value)])}
  >
    ${(!required || at < 0) && html`<option value="-1">${value !== undefined && at < 0 ? stringify(value) : t("form.unset")}</option>`}
    ${choices.map((/** @type {any} */ each, /** @type {number} */ index) => html`<option value=${String(index)}>${typeof each === "string" ? each : stringify(each)}</option>`)}
  </select>`;
}

/** A number; what is not a number stays as text, and the check says so. @param {any} props */
function NumberField(props) {
  const { value, set, path } = props;
  const [text, setText] = useState(value === undefined ? "" : String(value));
  const [problem, setProblem] = useUnsent(path);
  const last = useRef(value);
  const isMine = problem !== "" || same(last.current, value);
  const about = access(props);
  const change = (/** @type {any} */ event) => {
    const given = event.currentTarget.value;
    setText(given);
    try {
      last.current = numberOf(given);
      setProblem("");
      set(last.current);
    } catch (error) {
      setProblem(/** @type {Error} */ (error).message);
    }
  };
  return html`<input
      class="input mono"
      ...${about}
      aria-invalid=${String(problem !== "" || about["aria-invalid"] === "true")}
      inputmode="decimal"
      autocomplete="off"
      value=${isMine ? text : value === undefined ? "" : String(value)}
      onInput=${change}
    />
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}`;
}

/** @param {string} text @throws {Error} A call would not keep the number. */
function numberOf(text) {
  const clean = text.trim();
  if (clean === "") return undefined;
  return /^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$/.test(clean) ? typed(clean) : text;
}

/** What the fields of a form show and cannot send, by place: nothing is sent meanwhile. */
export const Unsent = createContext(/** @type {Map<string, string>} */ (new Map()));

/** The problem of a field whose text is not what would be sent. @param {(string | number)[]} path */
function useUnsent(path) {
  const all = useContext(Unsent);
  const place = placeOf(path);
  const [problem, setProblem] = useState("");
  useLayoutEffect(() => {
    if (!problem) return undefined;
    all.set(place, problem);
    return () => void all.delete(place);
  }, [all, place, problem]);
  return /** @type {const} */ ([problem, setProblem]);
}

/** Return why a form is not sent now; "" if it may be. @param {Map<string, string>} unsent */
export function unsentIn(unsent) {
  const [place, problem] = [...unsent][0] ?? [];
  return problem === undefined ? "" : t("form.unsent", { place: place || t("form.all"), problem });
}

/** @type {Record<string, string>} */
const TYPES = { date: "date", password: "password" };

/** @param {any} props */
function Text(props) {
  const { shape, value, set, required } = props;
  const shown = value === undefined ? "" : typeof value === "string" ? value : stringify(value);
  const change = (/** @type {any} */ event) => {
    const text = event.currentTarget.value;
    set(text === "" && !required ? undefined : text);
  };
  const type = TYPES[shape.schema.format];
  if (type) return html`<input class="input" ...${access(props)} type=${type} autocomplete="off" value=${shown} onInput=${change} />`;
  return html`<textarea class="input mono" ...${access(props)} rows="1" spellcheck=${false} autocomplete="off" value=${shown} onInput=${change} />`;
}

/** A value as JSON text. What is not JSON is not sent. @param {any} props */
export function JsonField(props) {
  const { value, set } = props;
  const [text, setText] = useState(() => shownAs(value));
  const [problem, setProblem] = useUnsent(props.path);
  const last = useRef(value);
  useEffect(() => {
    if (same(last.current, value)) return;
    last.current = value; // it was changed elsewhere
    setText(shownAs(value));
    setProblem("");
  }, [value]);
  const change = (/** @type {any} */ event) => {
    const given = event.currentTarget.value;
    setText(given);
    try {
      const parsed = given.trim() === "" ? undefined : typed(given);
      last.current = parsed;
      setProblem("");
      set(parsed);
    } catch (error) {
      setProblem(error instanceof SyntaxError ? t("form.json.bad", { message: error.message }) : /** @type {Error} */ (error).message);
    }
  };
  const about = access(props);
  return html`<textarea
      class="input mono"
      ...${about}
      aria-invalid=${String(problem !== "" || about["aria-invalid"] === "true")}
      rows="2"
      spellcheck=${false}
      placeholder="JSON"
      value=${text}
      onInput=${change}
    />
    ${problem && html`<span class="problem" role="alert">${problem}</span>`}`;
}

/** @param {any} value */
function shownAs(value) {
  return value === undefined ? "" : stringify(value, 2);
}
