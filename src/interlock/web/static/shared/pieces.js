// A long text in pieces, so that the browser lays only those out that are seen.

import { marked } from "./marks.js";
import { t } from "./text.js";
import { html, useEffect, useMemo, useState } from "./view.js";

const PIECE = 8_000; // characters
const SHOWN = 12; // pieces that are added at once

/**
 * A text of any length in a box that scrolls. More than four blank lines are one mark, as they
 * could move what follows them out of sight.
 * @param {{text: string, kind?: string}} props `kind`: a class.
 */
export function Pieces({ text, kind = "" }) {
  const pieces = useMemo(() => cut(text), [text]);
  const [shown, setShown] = useState(SHOWN);
  useEffect(() => {
    if (shown >= pieces.length) return undefined;
    const timer = setTimeout(() => setShown(shown + SHOWN), 0);
    return () => clearTimeout(timer);
  }, [shown, pieces.length]);
  return html`<div class=${`pieces ${kind}`} tabindex="0" role="group" aria-label=${t("text.whole")} dir="auto" aria-busy=${String(shown < pieces.length)}>
    ${pieces.slice(0, shown).map((each, at) => html`<${Piece} key=${at} text=${each} />`)}
  </div>`;
}

/** Not drawn again while others are added. @param {{text: string}} props */
function Piece({ text }) {
  return useMemo(() => html`<div class="piece">${text.split(/(\n(?:[ \t]*\n){5,})/).map((each, at) => (at % 2 ? blank(each) : marked(each)))}</div>`, [text]);
}

/** @param {string} lines */
function blank(lines) {
  return html`${"\n"}<span class="mark-char">${t("fold.blank", { n: lines.split("\n").length - 2 })}</span>${"\n"}`;
}

/** @param {string} text */
function cut(text) {
  const pieces = [];
  let at = 0;
  while (at < text.length) {
    let end = Math.min(text.length, at + PIECE);
    if (end < text.length) {
      const line = text.slice(at, end).lastIndexOf("\n");
      if (line >= 0) end = at + line + 1;
      else if ((text.charCodeAt(end - 1) & 0xfc00) === 0xd800) end += 1; // not within a character
    }
    // The line ends with its block.
    pieces.push(text.slice(at, end < text.length && text[end - 1] === "\n" ? end - 1 : end));
    at = end;
  }
  return pieces;
}
