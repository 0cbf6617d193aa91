// With whose rights the lists are shown and calls are checked: one's own, or those of a key.

import { get } from "../shared/api.js";
import { go, place } from "../shared/route.js";
import { html, useEffect, useState } from "../shared/view.js";
import { t } from "./text.js";

/** @typedef {{id: string, name: string, user: string}} Key */

/** @param {{chosen: string}} props The id of a key; "" for one's own rights. */
export default function Keys({ chosen }) {
  const [keys, setKeys] = useState(/** @type {Key[]} */ ([]));
  useEffect(() => {
    get("/admin/api/v1/keys?limit=500&state=active").then(setKeys, () => undefined); // not for this key
  }, []);
  if (keys.length === 0) return null;
  const isKnown = chosen === "" || keys.some((each) => each.id === chosen);
  /** @param {string} id */
  function choose(id) {
    const values = new URLSearchParams(place.value.query);
    values.delete("as");
    if (id) values.set("as", id);
    const query = values.toString();
    go(place.value.path + (query && `?${query}`));
  }
  return html`<select class="as-key" aria-label=${t("as.label")} value=${chosen} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
    <option value="">${t("as.self")}</option>
    ${keys.map((each) => html`<option value=${each.id}>${t("as.key", { key: each.name || each.id, user: each.user.replace(/^user:/, "") })}</option>`)}
    ${!isKnown && html`<option value=${chosen}>${chosen}</option>`}
  </select>`;
}
