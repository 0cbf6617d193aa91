// Limits: each one, how full it is, and who met it today.

import { html } from "../../shared/view.js";
import { ago, count } from "../../shared/format.js";
import { Missing, useLoad } from "../../shared/load.js";
import { Address } from "../../shared/marks.js";
import { LIMITED } from "../../shared/outcomes.js";
import { API, Link, words } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";
import { Usage } from "./keys.js";

export default function Limits() {
  const usage = useLoad(`${API}/usage`, { every: 30_000 });
  const status = useLoad(`${API}/status`, { every: 30_000 });
  /** @type {Record<string, number>} */
  const refusals = usage.data?.refusals ?? {};
  return html`<${Screen} title=${t("nav.limits")}>
    ${!usage.data && html`<${Missing} of=${usage} />`}
    ${usage.data && html`<div class="stack">
      <${Usage} of=${usage.data} />
      ${status.data && html`<section class="box" aria-labelledby="queues-title">
        <div class="box-head"><h2 id="queues-title">${t("limits.queues")}</h2></div>
        <ul class="plain-list">${status.data.servers.map((/** @type {any} */ each) => html`<li>
          <${Link} to=${`/gateway/servers/${encodeURIComponent(each.name)}`} class="address name">${each.name}<//>
          <span class="muted small">${t("limits.queue", { running: each.calls, waiting: each.queue })}</span></li>`)}</ul>
      </section>`}
      <section class="box" aria-labelledby="met-title">
        <div class="box-head"><h2 id="met-title">${t("limits.met")}</h2><span class="muted small">${t("limits.since")}</span></div>
        ${Object.keys(refusals).length === 0 ? html`<p class="empty"><strong>${t("limits.none")}</strong>${t("limits.none.why")}</p>`
          : html`<ul class="plain-list">${Object.entries(refusals).map(([reason, n]) => html`<li>
              <${Link} to=${`/gateway/audit?reason=${reason}`}>${words(reason)}<//> <span class="number grow">${count(n)}</span></li>`)}</ul>`}
      </section>
      ${[...LIMITED].map((reason) => html`<${Met} key=${reason} reason=${reason} isMet=${Boolean(refusals[reason])} />`)}
    </div>`}
  <//>`;
}

/** @param {{reason: string, isMet: boolean}} props */
function Met({ reason, isMet }) {
  const calls = useLoad(isMet ? `${API}/audit?reason=${reason}&since=24h&limit=50` : null);
  if (!isMet || !calls.data?.length) return null;
  return html`<section class="box" aria-label=${words(reason)}>
    <div class="box-head"><h2>${t("limits.who", { reason: words(reason) })}</h2></div>
    <ul class="plain-list">${calls.data.map((/** @type {any} */ each) => html`<li>
      <span>${each.key ? html`<${Link} to=${`/gateway/keys/${each.key}`}>${each.user}<//>` : each.user}</span>
      ${each.tool && html`<${Address} address=${each.tool} />`} <span class="muted small">${ago(each.at)}</span></li>`)}</ul>
  </section>`;
}
