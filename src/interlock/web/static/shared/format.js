// Numbers, sizes, durations and times as people read them.

export { count } from "./text.js";

const percents = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });
const dates = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const times = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

/**
 * Return a share as percent: 0.013 is "1.3 %".
 * @param {number} share
 */
export function percent(share) {
  return `${percents.format(share * 100)} %`;
}

/**
 * Return a duration in milliseconds as "318 ms", "4.8 s", "2 min 5 s".
 * @param {number | null | undefined} ms
 */
export function duration(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 10 && ms > 0) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return span(ms);
}

/**
 * Return a long duration in milliseconds in its two largest units.
 * @param {number} ms
 */
export function span(ms) {
  const seconds = Math.round(ms / 1000);
  const units = /** @type {const} */ ([["d", 86_400], ["h", 3600], ["min", 60], ["s", 1]]);
  const parts = [];
  let rest = seconds;
  for (const [unit, size] of units) {
    if (rest >= size || (unit === "s" && parts.length === 0)) {
      parts.push(`${Math.floor(rest / size)} ${unit}`);
      rest %= size;
      if (parts.length === 2) break;
    } else if (parts.length) break;
  }
  return parts.join(" ");
}

/**
 * Return how long ago a time was: "9 min ago"; of a time to come "in 3 d".
 * @param {string | number | Date} time
 * @param {number} [now]
 */
export function ago(time, now = Date.now()) {
  const ms = now - new Date(time).getTime();
  const text = coarse(Math.abs(ms));
  if (Math.abs(ms) < 5000) return "now";
  return ms >= 0 ? `${text} ago` : `in ${text}`;
}

/** @param {number} ms */
function coarse(ms) {
  const seconds = ms / 1000;
  if (seconds < 90) return `${Math.round(seconds)} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

/** @param {string | number | Date} time */
export function day(time) {
  return dates.format(new Date(time));
}

/** @param {string | number | Date} time */
export function clock(time) {
  return times.format(new Date(time));
}

/**
 * Return a time of the day with milliseconds, as in tables.
 * @param {string | number | Date} time
 */
export function instant(time) {
  const at = new Date(time);
  const two = (/** @type {number} */ value) => String(value).padStart(2, "0");
  const rest = String(at.getMilliseconds()).padStart(3, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${rest}`;
}

/** @param {number} bytes */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} bytes`;
  if (bytes < 1024 * 1024) return `${(bytes / 1024).toFixed(1)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}
