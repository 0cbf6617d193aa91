// The side: what the server offers, its state, and its era.

import { Brand, ThemeChoice } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { marked } from "../shared/marks.js";
import { Chip } from "../shared/outcomes.js";
import { page } from "../shared/page.js";
import { place } from "../shared/route.js";
import { html, signal, useState } from "../shared/view.js";
import { later } from "./later.js";
import { inspection, restart } from "./state.js";
import { t } from "./text.js";

const MANY = 300;
const Keys = later(() => import("./keys.js"));

/** The revisions that can be chosen; the server says which. */
export const eras = signal(/** @type {string[]} */ (["auto", "legacy"]));

/**
 * The address of an item of a server, or of the server.
 * @param {string} server
 * @param {string} kind
 * @param {string} [name]
 */
export function pathOf(server, kind = "", name = "") {
  const base = `/inspect/${encodeURIComponent(server)}`;
  const as = new URLSearchParams(place.value.query).get("as");
  const query = new URLSearchParams({ ...(kind && kind !== "tool" && { [kind]: name }), ...(as && { as }) }).toString();
  return (kind === "tool" ? `${base}/${encodeURIComponent(name)}` : base) + (query && `?${query}`);
}

/** @type {[("tools" | "resources" | "resourceTemplates" | "prompts"), string, import("../shared/icons.js").IconName, string][]} */
const KINDS = [
  ["tools", "tool", "tool", "name"],
  ["resources", "resource", "file", "uri"],
  ["resourceTemplates", "template", "file", "uriTemplate"],
  ["prompts", "prompt", "chat", "name"],
];

export function Side() {
  const now = inspection.value;
  const [search, setSearch] = useState("");
  return html`
    <${Brand} href="/inspect" place=${t("inspector")} />
    ${now &&
    html`<div class="inspect-search">
      <input class="input" type="search" aria-label=${t("search")} placeholder=${t("search.n", { n: now.tools.length })} value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.currentTarget.value)} />
    </div>`}
    <div class="scroll">${now && html`<${Offer} now=${now} search=${search.toLowerCase()} />`}</div>
    ${now && html`<${State} now=${now} />`}
    <div class="foot">
      ${page.chat && html`<a href="/">${t("to.chat")}</a>`}
      ${page.board && html`<a href="/gateway">${t("to.board")}</a>`}
      <span class="grow"></span>
      <${ThemeChoice} />
    </div>
  `;
}

/** @param {{now: import("./types.js").Inspection, search: string}} props */
function Offer({ now, search }) {
  const here = place.value.path + place.value.query;
  const about = new Map((now.remarks ?? []).map((each) => [each.about, each]));
  const groups = KINDS.map(([member, kind, icon, key]) => {
    const all = now[member].map((each) => ({ item: each, name: String(each.definition[key] ?? "") }));
    const found = all.filter(({ item, name }) => search === "" || `${name} ${item.definition.title ?? ""} ${item.definition.description ?? ""}`.toLowerCase().includes(search));
    return { member, kind, icon, found };
  });
  return html`
    ${groups.map(({ member, kind, icon, found }) => {
      if (found.length === 0 && member !== "tools") return null;
      const title = member === "tools" ? `${now.server}, ${t(/** @type {any} */ (`kind.${now.kind}`))}` : t(/** @type {any} */ (member));
      return html`<h2 id=${`of-${member}`}>${marked(title)}</h2>
        <nav class="nav inspect-nav" aria-labelledby=${`of-${member}`}>
          ${found.slice(0, MANY).map(({ item, name }) => {
            const path = pathOf(now.server, kind, name);
            const remark = about.get(`${kind}:${name}`);
            return html`<a href=${path} aria-current=${here === path ? "page" : null} title=${name}>
              <${Icon} name=${item.effect === "deny" ? "lock" : icon} label=${item.effect === "deny" ? t("denied") : ""} />
              <span class="mono name">${marked(name)}</span>
              ${remark && html`<span class=${`dot ${remark.level}`} role="img" aria-label=${t("remark")} title=${remark.text}></span>`}
            </a>`;
          })}
          ${found.length > MANY && html`<p class="small muted">${t("search.more", { n: found.length - MANY })}</p>`}
          ${found.length === 0 && html`<p class="small muted nothing">${now.state === "starting" ? t("state.starting") : now.state !== "ok" ? t("tools.unknown") : search ? t("search.none") : t("tools.none")}</p>`}
        </nav>`;
    })}
    ${now.unusable.length > 0 &&
    html`<h2>${t("unusable")}</h2>
      <ul class="unusable small">
        ${now.unusable.map((each) => html`<li><span class="mono">${marked(each.name)}</span> <span class="muted">${marked(each.problem)}</span></li>`)}
      </ul>`}
  `;
}

/** @type {Record<string, [import("../shared/outcomes.js").Tone, import("../shared/icons.js").IconName]>} */
const STATES = {
  ok: ["ran", "check"],
  starting: ["running", "turning"],
  down: ["failed", "cross"],
  failed: ["failed", "cross"],
  closed: ["quiet", "minus"],
};

/** @param {{now: import("./types.js").Inspection}} props */
function State({ now }) {
  const [tone, icon] = STATES[now.state] ?? ["quiet", "minus"];
  return html`<div class="inspect-state">
    <div class="row">
      <${Chip} tone=${tone} icon=${icon}>${t(/** @type {any} */ (`state.${now.state}`))}<//>
      <span class="grow"></span>
      <button type="button" class="button" disabled=${now.state === "starting"} onClick=${() => restart()}><${Icon} name="turning" />${t("restart")}</button>
    </div>
    <select aria-label=${t("era")} value=${now.era} onChange=${(/** @type {any} */ event) => restart(event.currentTarget.value)}>
      ${eras.value.map((each) => html`<option value=${each}>${eraOf(each, now)}</option>`)}
    </select>
    ${page.board && html`<${Keys} chosen=${now.as} />`}
  </div>`;
}

/** @param {string} era @param {import("./types.js").Inspection} now */
function eraOf(era, now) {
  if (era === "auto") return now.era === "auto" && now.revision ? t("era.found", { revision: now.revision }) : t("era.auto");
  return era === "legacy" ? t("era.legacy") : era;
}
