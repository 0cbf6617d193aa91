// What is folded of a long value: by the rows that it takes, not by its characters alone.

import { isBranch } from "./exact.js";
import { isInvisible } from "./marks.js";

const ROWS = 6; // of a text that is not folded
const HEAD = 3; // rows of a folded text before the fold
const TAIL = 2; // and after it
const ALL = 16; // rows of all arguments together before the others are folded
const INLINE = 60; // characters of a nested value that is not folded
export const NAME = 16; // characters in a row of a name
export const MANY = 100; // members that are shown at once

/** @typedef {{lines: number, characters: number}} Hidden What a fold hides. */
/** @typedef {{head: string, tail: string, hidden: Hidden}} Fold */

const isNarrow = () => globalThis.matchMedia?.("(max-width: 720px)").matches ?? false;

/** The characters in a row, less than there really are. */
export const columns = () => (isNarrow() ? 32 : 64);

/**
 * Return a text's part that fits into some rows.
 * @param {string} text
 * @param {number} rows
 * @param {number} width Characters in a row.
 * @param {1 | -1} step Whether the part is at the start or at the end.
 * @returns {{size: number, rows: number}} Its characters, and the rows that it takes.
 */
function fitting(text, rows, width, step) {
  let used = 1;
  let column = 0;
  let at = step > 0 ? 0 : text.length;
  while (step > 0 ? at < text.length : at > 0) {
    const code = /** @type {number} */ (text.codePointAt(step > 0 ? at : before(text, at)));
    if (code === 10) {
      used += 1;
      column = 0;
    } else {
      column += widthOf(code);
      if (column > width) {
        used += 1;
        column = widthOf(code);
      }
    }
    if (used > rows) return { size: step > 0 ? at : text.length - at, rows };
    at += (code > 0xffff ? 2 : 1) * step;
  }
  return { size: text.length, rows: used };
}

/** The index of the character before another one. @param {string} text @param {number} at */
function before(text, at) {
  const code = text.charCodeAt(at - 1);
  const isPair = code >= 0xdc00 && code < 0xe000 && (text.charCodeAt(at - 2) & 0xfc00) === 0xd800;
  return at - (isPair ? 2 : 1);
}

/** @param {number} code */
function widthOf(code) {
  if (code < 0x7f) return code === 9 ? 8 : code < 32 ? 7 : 1;
  return isInvisible(String.fromCodePoint(code)) ? 8 : code > 0x1100 ? 2 : 1;
}

/** @param {string} text */
function linesOf(text) {
  let found = 1;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) found += 1;
  return found;
}

/**
 * Return how a text is folded; null if all of it is shown.
 * @param {string} text
 * @param {number} [width] Characters in a row.
 * @returns {Fold | null}
 */
export function foldOf(text, width = columns()) {
  if (fitting(text, ROWS, width, 1).size === text.length) return null;
  // No row is spent on blank lines beside the fold.
  const head = text.slice(0, fitting(text, HEAD, width, 1).size).replace(/(\n[ \t]*)+$/, "");
  const rest = text.slice(head.length);
  const tail = rest.slice(rest.length - fitting(rest, TAIL, width, -1).size).replace(/^([ \t]*\n)+/, "");
  const middle = rest.slice(0, rest.length - tail.length).replace(/^\n|\n$/g, "");
  return { head, tail, hidden: { lines: linesOf(middle), characters: rest.length - tail.length } };
}

/** @type {WeakMap<object, Hidden>} */
const SIZES = new WeakMap();

/**
 * Return how long a value is as JSON, a member a line.
 * @param {unknown} value
 * @returns {Hidden}
 */
export function sizeOf(value) {
  if (typeof value === "string") return { lines: linesOf(value), characters: value.length + 2 };
  if (!isBranch(value)) return { lines: 1, characters: String(value).length };
  const known = SIZES.get(value);
  if (known) return known;
  const size = { lines: 2, characters: 2 };
  const isList = Array.isArray(value);
  for (const [name, each] of membersOf(value)) {
    const { lines, characters } = sizeOf(each);
    size.lines += lines;
    size.characters += characters + (isList ? 1 : name.length + 4);
  }
  SIZES.set(value, size);
  return size;
}

/**
 * Return what a folded value hides; null for one that is short enough to be shown.
 * @param {unknown} value
 * @returns {Hidden | null}
 */
export function hiddenIn(value) {
  if (typeof value === "string") return foldOf(value)?.hidden ?? null;
  if (!isBranch(value)) return null;
  const size = sizeOf(value);
  return size.characters > INLINE ? size : null;
}

/** The members of an object or list, with their names. @param {object} value @returns {[string, unknown][]} */
export function membersOf(value) {
  return Array.isArray(value) ? value.map((each, at) => [String(at), each]) : Object.entries(value);
}

/** @param {string} path @param {string} name */
export const below = (path, name) => `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`;

/** The path of a fold that hides the last members of a value. @param {string} path */
export const restOf = (path) => `${path}/~`; // no member has this path

/** The path of the fold in the name of a member. @param {string} path */
export const nameOf = (path) => `${path}~name`;

/**
 * Return how many of the arguments are shown before the others are folded.
 * @param {[string, unknown][]} members
 */
export function shownOf(members) {
  const width = columns();
  let left = ALL;
  const found = members.findIndex(([name, value]) => {
    const text = typeof value === "string" ? value : isBranch(value) ? "" : String(value);
    left -= Math.max(fitting(name, ROWS, NAME, 1).rows, fitting(text, ROWS, width, 1).rows);
    return left < 0;
  });
  return found < 0 ? members.length : Math.max(1, found);
}

/**
 * Return the paths of all folds in arguments.
 * @param {unknown} value
 * @param {string} [path]
 * @returns {string[]}
 */
export function foldsIn(value, path = "") {
  /** @type {string[]} */
  const found = [];
  const areArguments = path === "" && isBranch(value) && !Array.isArray(value);
  if (!areArguments) {
    if (!hiddenIn(value)) return found;
    found.push(path);
  }
  if (!isBranch(value)) return found;
  const members = membersOf(value);
  if (members.length > (areArguments ? shownOf(members) : MANY)) found.push(restOf(path));
  for (const [name, each] of members) {
    const at = below(path, name);
    if (foldOf(name, NAME)) found.push(nameOf(at));
    for (const inner of foldsIn(each, at)) found.push(inner);
  }
  return found;
}
