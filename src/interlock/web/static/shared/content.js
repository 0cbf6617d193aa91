// Texts and pictures of a result, as every part of the pages shows them.

import { size } from "./format.js";
import { Pieces } from "./pieces.js";
import { t } from "./text.js";
import { html, useEffect, useState } from "./view.js";

/** @type {[string, string][]} The first bytes of pictures in base64. */
const PICTURES = [
  ["iVBORw0KGgo", "image/png"],
  ["/9j/", "image/jpeg"],
  ["R0lGOD", "image/gif"],
  ["UklGR", "image/webp"],
];

/** A whole text. @param {{text: string}} props */
export function Long({ text }) {
  return html`<${Pieces} text=${text} kind="result-text" />`;
}

/** A picture, as its own bytes say. @param {{data: string}} props */
export function Picture({ data }) {
  const [url, setUrl] = useState("");
  const type = PICTURES.find(([start]) => data.startsWith(start))?.[1];
  useEffect(() => {
    if (!type) return undefined;
    const made = URL.createObjectURL(new Blob([Uint8Array.from(atob(data), (each) => each.charCodeAt(0))], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [data, type]);
  if (!type) return html`<p class="small muted">${t("content.binary", { size: size((data.length * 3) / 4) })}</p>`;
  return url ? html`<img class="picture" src=${url} alt=${t("content.picture")} />` : null;
}
