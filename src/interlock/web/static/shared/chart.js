// Charts as SVG: stacked bars with a brush, and sparklines. Styled by CSS, readable as tables.

import { html, useLayoutEffect, useRef, useState } from "./view.js";
import { clock, count, day } from "./format.js";
import { t } from "./text.js";

/**
 * @typedef {object} Bucket
 * @property {string} at When it begins.
 * @property {Record<string, number>} counts By the name of the part.
 */

const HEIGHT = 170;
const FOOT = 18;

/**
 * Stacked bars.
 * @param {{
 *   label: string,
 *   buckets: Bucket[],
 *   parts: string[],
 *   names: (part: string) => string,
 *   height?: number,
 *   asTable?: boolean,
 *   choose?: (since: string, until: string) => void,
 * }} props `parts` from the bottom to the top. `choose` is called with the time of a drag.
 */
export function StackedBars({ label, buckets, parts, names, height = HEIGHT, asTable, choose }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(600);
  const [brush, setBrush] = useState(/** @type {[number, number] | null} */ (null));
  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const watch = new ResizeObserver(() => setWidth(Math.max(160, element.clientWidth)));
    watch.observe(element);
    setWidth(Math.max(160, element.clientWidth));
    return () => watch.disconnect();
  }, [asTable]);

  const totals = buckets.map((each) => parts.reduce((sum, part) => sum + (each.counts[part] ?? 0), 0));
  if (totals.every((each) => each === 0)) return html`<p class="empty">${t("chart.empty")}</p>`;
  if (asTable) return html`<${Table} label=${label} buckets=${buckets} parts=${parts} names=${names} />`;

  const top = nice(Math.max(...totals));
  const room = height - FOOT;
  const step = width / buckets.length;
  const gap = step > 8 ? 2 : step > 3 ? 1 : 0;
  const y = (/** @type {number} */ value) => (value / top) * (room - 6);
  const every = Math.ceil(56 / step);

  /** @param {PointerEvent} event */
  const at = (event) => {
    const edge = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const index = Math.floor(((event.clientX - edge.left) / edge.width) * buckets.length);
    return Math.max(0, Math.min(buckets.length - 1, index));
  };
  const finish = () => {
    if (brush && choose) {
      const [low, high] = [Math.min(...brush), Math.max(...brush)];
      choose(buckets[low]?.at ?? "", timeAfter(buckets, high));
    }
    setBrush(null);
  };

  return html`<figure ref=${box}>
    <svg
      class="chart"
      role="img"
      aria-label=${`${label}: ${summary(parts, names, buckets)}`}
      viewBox=${`0 0 ${width} ${height}`}
      height=${height}
      onPointerDown=${choose && ((/** @type {PointerEvent} */ event) => setBrush([at(event), at(event)]))}
      onPointerMove=${choose && ((/** @type {PointerEvent} */ event) => brush && setBrush([brush[0], at(event)]))}
      onPointerUp=${choose && finish}
      onPointerLeave=${choose && (() => setBrush(null))}
    >
      ${[0.25, 0.5, 0.75, 1].map(
        (share) => html`<line class="grid" x1="0" x2=${width} y1=${room - y(top * share)} y2=${room - y(top * share)} />`,
      )}
      ${buckets.map((each, index) => {
        let under = 0;
        const x = index * step + gap / 2;
        return html`<g>
          ${parts.map((part) => {
            const value = each.counts[part] ?? 0;
            if (!value) return null;
            const high = Math.max(1, y(value) - (under ? 1 : 0));
            under += y(value);
            return html`<rect class=${part} x=${x} y=${room - under} width=${Math.max(0.5, step - gap)} height=${high} />`;
          })}
          <rect class="hit" x=${index * step} y="0" width=${step} height=${room}>
            <title>${told(each, parts, names)}</title>
          </rect>
        </g>`;
      })}
      ${buckets.map((each, index) =>
        index % every === 0 && (index + 1) * step <= width - 24
          ? html`<text x=${index * step} y=${height - 4}>${clock(each.at)}</text>`
          : null,
      )}
      ${brush &&
      html`<rect
        class="brush"
        x=${Math.min(...brush) * step}
        y="0"
        width=${(Math.abs(brush[1] - brush[0]) + 1) * step}
        height=${room}
      />`}
    </svg>
  </figure>`;
}

/** @param {{label: string, buckets: Bucket[], parts: string[], names: (part: string) => string}} props */
function Table({ label, buckets, parts, names }) {
  const filled = buckets.filter((each) => parts.some((part) => each.counts[part]));
  return html`<div class="scroll-x" tabindex="0" role="region" aria-label=${label}>
    <table>
      <thead>
        <tr>
          <th>${t("chart.time")}</th>
          ${parts.map((part) => html`<th class="number">${names(part)}</th>`)}
        </tr>
      </thead>
      <tbody>
        ${filled.map(
          (each) => html`<tr>
            <td>${day(each.at)}, ${clock(each.at)}</td>
            ${parts.map((part) => html`<td class="number">${count(each.counts[part] ?? 0)}</td>`)}
          </tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/**
 * What the colours of a chart mean.
 * @param {{parts: string[], names: (part: string) => string}} props
 */
export function Legend({ parts, names }) {
  return html`<div class="legend">
    ${parts.map(
      (part) => html`<span>
        <svg class="chart" viewBox="0 0 9 9" aria-hidden="true"><rect class=${part} width="9" height="9" rx="2" /></svg>
        ${names(part)}
      </span>`,
    )}
  </div>`;
}

/**
 * A line without axes. Its figures stand beside it.
 * @param {{values: number[], tone?: string}} props
 */
export function Spark({ values, tone = "" }) {
  const top = Math.max(1, ...values);
  const step = 90 / Math.max(1, values.length - 1);
  const points = values.map((each, at) => `${(1 + at * step).toFixed(1)},${(22 - (each / top) * 19).toFixed(1)}`);
  return html`<svg class=${`spark ${tone}`} viewBox="0 0 92 24" aria-hidden="true">
    <polyline points=${points.join(" ")} />
  </svg>`;
}

/** @param {Bucket} bucket @param {string[]} parts @param {(part: string) => string} names */
function told(bucket, parts, names) {
  const all = parts.filter((part) => bucket.counts[part]);
  const text = all.map((part) => `${count(bucket.counts[part] ?? 0)} ${names(part)}`).join(", ");
  return t("chart.bucket", { time: clock(bucket.at), parts: text });
}

/** @param {string[]} parts @param {(part: string) => string} names @param {Bucket[]} buckets */
function summary(parts, names, buckets) {
  return parts
    .map((part) => [names(part), buckets.reduce((sum, each) => sum + (each.counts[part] ?? 0), 0)])
    .map(([name, sum]) => `${count(Number(sum))} ${name}`)
    .join(", ");
}

/** @param {Bucket[]} buckets @param {number} index */
function timeAfter(buckets, index) {
  const next = buckets[index + 1];
  if (next) return next.at;
  const [first, second] = buckets;
  if (!first || !second) return new Date().toISOString();
  const length = new Date(second.at).getTime() - new Date(first.at).getTime();
  return new Date(new Date(buckets[index]?.at ?? first.at).getTime() + length).toISOString();
}

/**
 * Return the next round number.
 * @param {number} value
 */
function nice(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, value)));
  return [1, 1.2, 1.5, 2, 3, 4, 5, 6, 8, 10].map((each) => each * power).find((each) => each >= value) ?? value;
}
