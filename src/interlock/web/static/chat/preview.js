// Files of messages as small pictures, which open large.

import { pageKey } from "../shared/api.js";
import { Dialog } from "../shared/dialog.js";
import { Icon } from "../shared/icons.js";
import { html, useEffect, useState } from "../shared/view.js";
import { t } from "./text.js";

const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/** Whether a file of this type can be shown. @param {string | undefined} type */
export const isPicture = (type) => PICTURES.includes(type ?? "");

/**
 * A picture of a message, from this machine or from the server.
 * @param {{of: {id: string, name: string, type: string, file?: File}}} props
 */
export function Preview({ of }) {
  const { id, name, type, file } = of;
  const [url, setUrl] = useState("");
  const [isBroken, setBroken] = useState(false);
  const [isLarge, setLarge] = useState(false);
  useEffect(() => {
    let made = "";
    let isGone = false;
    /** @param {Blob} body Its type is one of `PICTURES`, whatever is in it. */
    const draw = (body) => {
      if (isGone) return;
      made = URL.createObjectURL(body.slice(0, body.size, type));
      setUrl(made);
    };
    if (file) draw(file);
    else void load(id).then((body) => (body ? draw(body) : setBroken(true)));
    return () => {
      isGone = true;
      URL.revokeObjectURL(made);
    };
  }, [id, file]);
  if (isBroken) return html`<${Icon} name="file" />`;
  if (!url) return html`<span class="preview"></span>`;
  return html`<button type="button" class="preview" aria-label=${t("file.show", { name })} onClick=${() => setLarge(true)}>
      <img src=${url} alt="" onError=${() => setBroken(true)} />
    </button>
    ${isLarge &&
    html`<${Dialog} title=${name} class="ask large" close=${() => setLarge(false)}>
      <img class="picture" src=${url} alt=${name} />
      <div class="actions"><button type="button" class="button main" onClick=${() => setLarge(false)}>${t("done")}</button></div>
    <//>`}`;
}

/** @param {string} id */
async function load(id) {
  const headers = { "X-Interlock-Key": pageKey() ?? "" };
  const answer = await fetch(`/api/files/${encodeURIComponent(id)}`, { headers }).catch(() => null);
  return answer?.ok ? answer.blob() : null;
}
