// A table of very many rows: all of one height, and only the visible ones exist.

import { html, useEffect, useLayoutEffect, useRef, useState } from "./view.js";

const HEAD = 36; // height of the line of titles, in pixels
const OVER = 6; // rows that are drawn beyond each edge

/**
 * @template Row
 * @typedef {object} WindowProps
 * @property {string} label
 * @property {Row[]} rows
 * @property {(row: Row) => string} id
 * @property {(row: Row) => any} cells The cells of a row.
 * @property {string[]} heads The titles of the columns.
 * @property {string} kind A class that has the widths of the columns.
 * @property {string} [chosen] The id of the chosen row.
 * @property {(row: Row) => void} choose
 * @property {() => void} [end] Called when the last rows are near.
 * @property {number} [height] Of a row, in pixels.
 */

/**
 * @template Row
 * @param {WindowProps<Row>} props
 */
export function Window({ label, rows, id, cells, heads, kind, chosen, choose, end, height = 37 }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [first, setFirst] = useState(0);
  const [shown, setShown] = useState(30);
  const [at, setAt] = useState(0);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const measure = () => setShown(Math.ceil(element.clientHeight / height) + 1);
    const watch = new ResizeObserver(measure);
    watch.observe(element);
    measure();
    return () => watch.disconnect();
  }, [height]);
  useEffect(() => {
    if (end && first + shown + OVER * 2 >= rows.length) end();
  }, [first, shown, rows.length, end]);

  /** @param {KeyboardEvent} event */
  function move(event) {
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: shown - 2, PageUp: 2 - shown };
    const step = /** @type {Record<string, number>} */ (steps)[event.key];
    if (event.key === "Enter" || event.key === " ") {
      const row = rows[at];
      if (row !== undefined) choose(row);
      event.preventDefault();
      return;
    }
    if (step === undefined || rows.length === 0) return;
    event.preventDefault();
    const next = Math.max(0, Math.min(rows.length - 1, at + step));
    setAt(next);
    const element = box.current;
    if (!element) return;
    if (next * height < element.scrollTop) element.scrollTop = next * height;
    const bottom = (next + 1) * height - element.clientHeight + HEAD;
    if (bottom > element.scrollTop) element.scrollTop = bottom;
  }

  const from = Math.max(0, first - OVER);
  const visible = rows.slice(from, first + shown + OVER);
  const active = rows[at];
  return html`<div
    class="window"
    role="grid"
    tabindex="0"
    aria-label=${label}
    aria-rowcount=${rows.length + 1}
    aria-activedescendant=${active === undefined ? null : `row-${id(active)}`}
    ref=${box}
    onKeyDown=${move}
    onScroll=${(/** @type {Event} */ event) =>
      setFirst(Math.floor(/** @type {HTMLElement} */ (event.currentTarget).scrollTop / height))}
  >
    <div role="rowgroup" class="window-top">
      <div class=${`window-head ${kind}`} role="row" aria-rowindex="1">
        ${heads.map((head) => html`<span role="columnheader">${head}</span>`)}
      </div>
    </div>
    <div class="space" role="rowgroup" style=${{ height: `${rows.length * height}px` }}>
      ${visible.map((row, index) => {
        const name = id(row);
        return html`<div
          key=${name}
          id=${`row-${name}`}
          class=${`line ${kind} ${name === chosen ? "chosen" : ""} ${from + index === at ? "active" : ""}`}
          role="row"
          aria-rowindex=${from + index + 2}
          aria-selected=${String(name === chosen)}
          style=${{ top: `${(from + index) * height}px`, height: `${height}px` }}
          onClick=${() => {
            setAt(from + index);
            choose(row);
          }}
        >
          ${cells(row).map((/** @type {any} */ cell) => html`<span role="gridcell">${cell}</span>`)}
        </div>`;
      })}
    </div>
  </div>`;
}
