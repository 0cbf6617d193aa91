// The sentences of the pages. Each part has a file of them; a language is a set of such files.

import messages from "./messages/en.json" with { type: "json" };

const plural = new Intl.PluralRules("en");

/**
 * Return a function that looks sentences up in a file and fills in their values.
 *
 * A sentence is a text with `{names}`. Where the number of things matters it is an object with
 * the members `one` and `other`, chosen by the value `n`.
 *
 * @template {Record<string, string | {one: string, other: string}>} Messages
 * @param {Messages} messages
 * @returns {(key: keyof Messages & string, values?: Record<string, string | number>) => string}
 */
export function wordsOf(messages) {
  return (key, values = {}) => {
    const found = /** @type {string | {one: string, other: string} | undefined} */ (messages[key]);
    if (found === undefined) return key;
    const forms = typeof found === "string" ? { one: found, other: found } : found;
    const text = plural.select(Number(values.n)) === "one" ? forms.one : forms.other;
    return text.replace(/\{(\w+)\}/g, (whole, name) => {
      const value = values[name];
      return value === undefined ? whole : typeof value === "number" ? count(value) : value;
    });
  };
}

const numbers = new Intl.NumberFormat("en");

/** @param {number} value */
export function count(value) {
  return numbers.format(value);
}

/** The sentences that every part of the pages uses. */
export const t = wordsOf(messages);
