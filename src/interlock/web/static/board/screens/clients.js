// Clients: the OAuth clients that people have allowed, who uses each, and the decisions about them.

import { html, useState } from "../../shared/view.js";
import { post, request } from "../../shared/api.js";
import { Confirm } from "../../shared/dialog.js";
import { ago, day } from "../../shared/format.js";
import { Missing, useLoad } from "../../shared/load.js";
import { Chip } from "../../shared/outcomes.js";
import { may } from "../../shared/session.js";
import { API, words } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

/**
 * @typedef {object} Client
 * @property {string} client
 * @property {string} name
 * @property {string} [verified] The host that proves who it is.
 * @property {string[]} [places]
 * @property {number} [people]
 * @property {string} [lastUsed]
 * @property {string} state
 */

/** @param {Client} client */
const nameOf = (client) => client.verified || client.name || client.client;

export default function Clients() {
  const clients = useLoad(`${API}/clients`, { every: 30_000 });
  /** @type {Client[]} */
  const all = clients.data ?? [];
  return html`<${Screen} title=${t("nav.clients")} about=${clients.data && t("clients.about", { n: all.length })}>
    ${!clients.data && html`<${Missing} of=${clients} />`}
    ${clients.data && html`<div class="stack">
      ${all.length === 0 && html`<div class="box"><p class="empty"><strong>${t("clients.none")}</strong>${t("clients.none.why")}</p></div>`}
      ${all.map((each) => html`<${Entry} key=${each.client} of=${each} done=${clients.reload} />`)}
    </div>`}
  <//>`;
}

/** @param {{of: Client, done: () => Promise<unknown>}} props */
function Entry({ of, done }) {
  const [isOpen, setOpen] = useState(false);
  const [asks, setAsks] = useState(false);
  const people = useLoad(isOpen ? `${API}/authorizations?client=${encodeURIComponent(of.client)}` : null);
  const isBlocked = of.state === "blocked";
  const act = isBlocked ? "allow" : "block";
  return html`<section class="box" aria-label=${nameOf(of)}>
    <div class="box-head">
      <${Chip} tone=${isBlocked ? "refused" : "ran"} icon=${isBlocked ? "cross" : "check"}>${words(of.state)}<//>
      <h2>${nameOf(of)}</h2>
      <span class="muted small grow">${of.verified ? t("clients.proven") : t("clients.unproven", { places: (of.places ?? [of.client]).join(", ") })}</span>
      <div class="end">
        ${of.people !== undefined && html`<button class="button plain" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}>${t("clients.people", { n: of.people })}</button>`}
        ${may("admin:write") && html`<button class="button" onClick=${() => setAsks(true)}>${t(`clients.${act}`)}</button>`}
      </div>
    </div>
    ${isOpen && !people.data && html`<${Missing} of=${people} />`}
    ${isOpen && people.data && html`<ul class="plain-list">
      ${people.data.map((/** @type {any} */ each) => html`<${Person} key=${each.id} of=${each} done=${() => Promise.all([people.reload(), done()])} />`)}
    </ul>`}
    ${asks && html`<${Confirm} title=${t(`clients.${act}.title`, { name: nameOf(of) })} does=${t(`clients.${act}`)} danger=${!isBlocked}
      act=${() => post(`${API}/clients/${act}`, { client: of.client }).then(done)} close=${() => setAsks(false)}>
      <p>${t(`clients.${act}.what`)}</p><//>`}
  </section>`;
}

/** @param {{of: any, done: () => Promise<unknown>}} props */
function Person({ of, done }) {
  const [asks, setAsks] = useState(false);
  const isActive = of.state === "active";
  return html`<li>
    <span class="grow">${of.user} <span class="muted small">${of.scopes.join(" ")}</span></span>
    <span class="muted small">${isActive ? t("clients.used", { time: ago(of.lastUsed), day: day(of.expires) }) : words(of.state)}</span>
    ${isActive && may("admin:write") && html`<button class="button plain" onClick=${() => setAsks(true)}>${t("clients.end")}</button>`}
    ${asks && html`<${Confirm} title=${t("clients.end.title", { user: of.user })} does=${t("clients.end")} danger
      act=${() => request("DELETE", `${API}/authorizations/${of.id}`).then(done)} close=${() => setAsks(false)}>
      <p>${t("clients.end.what")}</p><//>`}
  </li>`;
}
