// JSON as a tree that is drawn when it is opened, and long texts that are folded.

import { html, useState } from "./view.js";
import { marked } from "./marks.js";
import { t } from "./text.js";

const LONG = 400; // characters of a text that are shown at once
const MANY = 100; // members that are shown at once

/**
 * A value as a tree. The first levels are open.
 * @param {{value: unknown, open?: number}} props
 */
export function JsonView({ value, open = 2 }) {
  return html`<div class="json" dir="ltr"><${Value} value=${value} open=${open} /></div>`;
}

/** @param {{value: any, open: number}} props */
function Value({ value, open }) {
  if (typeof value === "string") {
    return html`<span class="string">"<${Folded} text=${value} />"</span>`;
  }
  if (value === null || typeof value !== "object") {
    return html`<span class="value">${String(value)}</span>`;
  }
  return html`<${Branch} value=${value} open=${open} />`;
}

/** @param {{value: any, open: number}} props */
function Branch({ value, open }) {
  const isList = Array.isArray(value);
  /** @type {[string, unknown][]} */
  const entries = isList ? value.map((each, at) => [String(at), each]) : Object.entries(value);
  const [isOpen, setOpen] = useState(open > 0);
  const [shown, setShown] = useState(MANY);
  const [first, last] = isList ? ["[", "]"] : ["{", "}"];
  if (entries.length === 0) return html`<span class="value">${first}${last}</span>`;
  const size = t(isList ? "json.items" : "json.members", { n: entries.length });
  return html`<details
    open=${isOpen}
    onToggle=${(/** @type {Event} */ event) =>
      setOpen(/** @type {HTMLDetailsElement} */ (event.currentTarget).open)}
  >
    <summary>${first}${!isOpen && html` ${size} ${last}`}</summary>
    ${isOpen &&
    html`<div class="members">
        ${entries.slice(0, shown).map(
          ([name, each]) => html`<div>
            ${!isList && html`<span class="key">${marked(name)}</span>${": "}`}<${Value}
              value=${each}
              open=${open - 1}
            />
          </div>`,
        )}
        ${entries.length > shown &&
        html`<button class="link" onClick=${() => setShown(shown + MANY * 10)}>${t("show.more")}</button>`}
      </div>
      ${last}`}
  </details>`;
}

/**
 * A text of which the first 400 characters are shown until it is opened.
 * @param {{text: string, opened?: () => void}} props `opened` is called the first time.
 */
export function Folded({ text, opened }) {
  const [isOpen, setOpen] = useState(false);
  if (text.length <= LONG) return html`<bdi dir="auto">${marked(text)}</bdi>`;
  return html`<bdi dir="auto">${marked(isOpen ? text : `${text.slice(0, LONG)}…`)}</bdi
    >${" "}<button
      type="button"
      class="link"
      aria-expanded=${String(isOpen)}
      onClick=${() => {
        setOpen(!isOpen);
        opened?.();
      }}
    >
      ${isOpen ? t("show.less") : t("show.all", { n: text.length })}
    </button>`;
}

/** @param {string} text */
export function isFolded(text) {
  return text.length > LONG;
}
