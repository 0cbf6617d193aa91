// The result of a call: a table, text, pictures or JSON, whichever the server sent.

import { Long, Picture } from "../shared/content.js";
import { isBranch, isNumber, parse, stringify } from "../shared/exact.js";
import { Icon } from "../shared/icons.js";
import { JsonView } from "../shared/json.js";
import { Missing, useLoad } from "../shared/load.js";
import { Foreign, marked } from "../shared/marks.js";
import { size } from "../shared/format.js";
import { html, useMemo, useState } from "../shared/view.js";
import { save } from "../shared/save.js";
import { t } from "./text.js";

const ROWS = 50;

/** @param {{card: import("./view.js").Card}} props */
export function Result({ card }) {
  const wanted = card.hasResult && card.id ? `/api/calls/${encodeURIComponent(card.id)}` : null;
  const loaded = useLoad(wanted);
  const result = loaded.data?.result;
  if (wanted && !loaded.data) return html`<${Missing} of=${loaded} />`;
  if (!result) return html`<${Long} text=${card.result || t("result.none")} />`;
  return html`<${Whole} result=${result} />`;
}

/** @param {{result: any}} props */
function Whole({ result }) {
  const data = useMemo(() => result.structuredContent ?? jsonOf(result.content), [result]);
  const table = useMemo(() => tableOf(data), [data]);
  const blocks = result.content ?? [];
  const isText = data === undefined || blocks.some((/** @type {any} */ each) => each.type !== "text");
  const [form, setForm] = useState(isText ? "text" : table ? "table" : "json");
  const forms = [table && "table", blocks.length > 0 && "text", data !== undefined && "json"].filter(Boolean);
  return html`
    ${forms.length > 1 &&
    html`<div class="row forms" role="group" aria-label=${t("result.form")}>
      ${forms.map(
        (/** @type {any} */ each) => html`<button type="button" class="link" aria-pressed=${String(each === form)} onClick=${() => setForm(each)}>
          ${t(/** @type {any} */ (`result.${each}`))}
        </button>`,
      )}
    </div>`}
    ${form === "table" && table && html`<${Rows} table=${table} />`}
    ${form === "json" && html`<${JsonView} value=${data} />`}
    ${form === "text" && blocks.map((/** @type {any} */ each) => html`<${Block} block=${each} />`)}
    ${form === "text" && blocks.length === 0 && html`<p class="muted">${t("result.none")}</p>`}
  `;
}

/** @param {any[]} content */
function jsonOf(content) {
  if (content?.length !== 1 || content[0].type !== "text") return undefined;
  const { text } = content[0];
  if (!/^\s*[[{]/.test(text) || text.length > 1_000_000) return undefined;
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Return the rows of data that are a list of objects, or an object with one such list.
 * @param {any} data
 * @returns {{names: string[], rows: any[]} | null}
 */
function tableOf(data) {
  let rows = data;
  if (isBranch(data) && !Array.isArray(data)) {
    const lists = Object.values(data).filter((each) => Array.isArray(each));
    rows = lists.length === 1 ? lists[0] : null;
  }
  const isRow = (/** @type {any} */ each) => isBranch(each) && !Array.isArray(each);
  if (!Array.isArray(rows) || rows.length === 0 || !rows.every(isRow)) return null;
  const names = [...new Set(rows.slice(0, 100).flatMap((each) => Object.keys(each)))];
  return names.length > 0 && names.length <= 12 ? { names, rows } : null;
}

/** @param {{table: {names: string[], rows: any[]}}} props */
function Rows({ table: { names, rows } }) {
  const [shown, setShown] = useState(ROWS);
  const numeric = names.map((name) => rows.every((row) => row[name] === undefined || isNumber(row[name])));
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label=${t("result.table")}>
      <table>
        <thead>
          <tr>${names.map((name, at) => html`<th scope="col" class=${numeric[at] ? "number" : ""}>${marked(name)}</th>`)}</tr>
        </thead>
        <tbody>
          ${rows.slice(0, shown).map((row) => html`<tr>${names.map((name, at) => html`<td class=${numeric[at] ? "number" : ""}>${cell(row[name])}</td>`)}</tr>`)}
        </tbody>
      </table>
    </div>
    <div class="row table-foot small muted">
      <span class="grow">${t("rows.of", { shown: Math.min(shown, rows.length), n: rows.length })}</span>
      ${rows.length > shown && html`<button type="button" class="link" onClick=${() => setShown(shown + 500)}>${t("rows.more")}</button>`}
      <button type="button" class="link" onClick=${() => save(new Blob([csv(names, rows)], { type: "text/csv" }), "result.csv")}>CSV</button>
    </div>`;
}

/** @param {any} value */
function cell(value) {
  if (value === undefined || value === null) return "";
  return html`<${Foreign} text=${isBranch(value) ? stringify(value) : String(value)} />`;
}

/** @param {string[]} names @param {any[]} rows */
function csv(names, rows) {
  const quoted = (/** @type {any} */ value) => {
    let text = value === undefined || value === null ? "" : isBranch(value) ? stringify(value) : String(value);
    // A spreadsheet would run what begins like this.
    if (!isNumber(value) && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return `"${text.replaceAll('"', '""')}"`;
  };
  return [names.map(quoted), ...rows.map((row) => names.map((name) => quoted(row[name])))].map((line) => line.join(",")).join("\r\n");
}

/** @param {{block: any}} props */
function Block({ block }) {
  if (block.type === "text") return html`<${Long} text=${block.text} />`;
  if (block.type === "image") return html`<${Picture} data=${block.data} />`;
  if (block.type === "resource_link") return html`<p class="small mono"><${Icon} name="link" /> ${marked(block.uri ?? "")}</p>`;
  if (block.type === "resource" && typeof block.resource?.text === "string") return html`<${Long} text=${block.resource.text} />`;
  return html`<p class="small muted">${t("result.block", { type: String(block.mimeType ?? block.type), size: size(((block.data ?? "").length * 3) / 4) })}</p>`;
}
