// Foreign text, with its control, direction and invisible characters as visible marks.

import { html } from "./view.js";
import { t } from "./text.js";

// Controls but tab and newline; soft hyphen; zero-width and direction characters; variation
// selectors; byte-order mark; controls of hieroglyphs, shorthand and music; tags; private use.
const INVISIBLE =
  /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u034F\u061C\u115F\u1160\u17B4\u17B5\u180B-\u180F\u200B-\u200F\u2028-\u202E\u2060-\u206F\u3164\uE000-\uF8FF\uFE00-\uFE0F\uFEFF\uFFA0\uFFF0-\uFFFB\u{13430}-\u{1343F}\u{1BCA0}-\u{1BCA3}\u{1D173}-\u{1D17A}\u{E0000}-\u{10FFFF}]/gu;

const ONE = new RegExp(INVISIBLE.source, "u"); // without a position that it would keep

/** @param {string} character */
export function isInvisible(character) {
  return ONE.test(character);
}

/**
 * Return a text as an array of strings and marks.
 * @param {string} text
 * @returns {any[]}
 */
export function marked(text) {
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(INVISIBLE)) {
    if (match.index > last) parts.push(text.slice(last, match.index));
    const code = `U+${match[0].codePointAt(0)?.toString(16).toUpperCase().padStart(4, "0")}`;
    parts.push(html`<span class="mark-char" title=${t("char", { code })}>${code}</span>`);
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

/**
 * Foreign text: never markup, in its own direction.
 * @param {{text: string}} props
 */
export function Foreign({ text }) {
  return html`<bdi dir="auto">${marked(text)}</bdi>`;
}

/**
 * The address of a tool: the server muted, the tool bold.
 * @param {{address: string}} props
 */
export function Address({ address }) {
  const cut = address.indexOf(":");
  const server = cut < 0 ? "" : address.slice(0, cut + 1);
  return html`<span class="address" dir="ltr"
    ><span class="server">${marked(server)}</span
    ><span class="name">${marked(address.slice(cut + 1))}</span></span
  >`;
}
