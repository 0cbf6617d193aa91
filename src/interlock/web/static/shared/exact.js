// JSON whose numbers keep their digits, from the server to the glass and back.

import { t } from "./text.js";

/** What a number may look like that JavaScript would write in another way. */
const OTHER = /[\d.]{17}|\.\d*0(?!\d)|\d[eE][-+\d]|-0(?![\d.])|\.0{6}/;
const TOKENS = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([-+]?\d+))?$/;
// No text can pretend to be a number: each page has another mark.
const MARK = crypto.randomUUID();
const MARKED = new RegExp(`"${MARK}([^"]*)"`, "g");
/** Members of answers that hold JSON of tools and people. The others hold numbers of our own. */
const FOREIGN = new Set(
  "arguments params result definition schema inputSchema outputSchema requestedSchema capabilities accepted seen".split(" "),
);

/** A number as it was written. It counts like one, and prints its own digits. */
export class Exact {
  /** @param {string} text */
  constructor(text) {
    this.text = text;
  }

  valueOf() {
    return Number(this.text);
  }

  toString() {
    return this.text;
  }

  toJSON() {
    return MARK + this.text;
  }
}

/** @param {unknown} value @returns {value is number | Exact} */
export function isNumber(value) {
  return typeof value === "number" || value instanceof Exact;
}

/** @param {unknown} value @returns {value is object} */
export function isBranch(value) {
  return value !== null && typeof value === "object" && !(value instanceof Exact);
}

/**
 * Return the value of a JSON text.
 * @param {string} text
 * @param {(number: string) => void} [check] Called with each number that JavaScript would write in another way.
 * @returns {any}
 */
export function parse(text, check) {
  if (!OTHER.test(text)) return JSON.parse(text);
  JSON.parse(text); // its errors name the right place
  const made = text.replace(TOKENS, (token) => {
    if (token.startsWith('"') || String(Number(token)) === token) return token;
    check?.(token);
    return `"${MARK}${token}"`;
  });
  return JSON.parse(made, (_, value) =>
    typeof value === "string" && value.startsWith(MARK) ? new Exact(value.slice(MARK.length)) : value,
  );
}

/**
 * Return the value of a JSON text that a person typed.
 * @param {string} text
 * @throws {Error} It is not JSON, or has a number that the call would not keep.
 */
export function typed(text) {
  return parse(text, (number) => {
    if (!isKept(number)) throw new Error(t("number.lost", { number, other: String(Number(number)) }));
  });
}

/**
 * Return whether a call keeps a number: integers have any size, others are doubles.
 * @param {string} number
 */
export function isKept(number) {
  return /^-?\d+$/.test(number) || digitsOf(number) === digitsOf(String(Number(number)));
}

/** The same text for the same number. @param {string} number */
function digitsOf(number) {
  const [, sign, whole = "", part = "", power = "0"] = NUMBER.exec(number) ?? [];
  const digits = (whole + part).replace(/^0+/, "");
  const kept = digits.replace(/0+$/, "");
  return kept && `${sign}${kept}e${Number(power) - part.length + digits.length - kept.length}`;
}

/**
 * Return the value of an answer of the server. Numbers of its own are plain ones.
 * @param {string} text
 * @returns {any}
 */
export function parseAnswer(text) {
  return OTHER.test(text) ? plain(parse(text)) : JSON.parse(text);
}

/** @param {any} value */
function plain(value) {
  if (value instanceof Exact) return value.valueOf();
  if (isBranch(value)) {
    for (const [name, each] of Object.entries(value)) {
      if (!FOREIGN.has(name) && typeof each === "object") /** @type {any} */ (value)[name] = plain(each);
    }
  }
  return value;
}

/**
 * Return a value as JSON.
 * @param {unknown} value
 * @param {number} [indent]
 */
export function stringify(value, indent) {
  const text = JSON.stringify(value, null, indent);
  return text === undefined ? "" : text.replace(MARKED, "$1");
}
