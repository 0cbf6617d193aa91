// Keys: who has which rights, created and shown once, rotated, revoked.

import { html, useId, useState } from "../../shared/view.js";
import { ApiError, post, request } from "../../shared/api.js";
import { Confirm, Copy, Dialog } from "../../shared/dialog.js";
import { ago, day } from "../../shared/format.js";
import { Icon } from "../../shared/icons.js";
import { Missing, Problem, useLoad } from "../../shared/load.js";
import { Foreign } from "../../shared/marks.js";
import { Chip } from "../../shared/outcomes.js";
import { may } from "../../shared/session.js";
import { t as common } from "../../shared/text.js";
import { API, Link, ToolList, typed } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

const SCOPES = /** @type {const} */ (["mcp:read", "mcp:*", "admin:read", "admin:approve", "admin:write"]);

/** @param {{id?: string}} props */
export default function Keys({ id }) {
  return id === undefined ? html`<${All} />` : html`<${One} id=${id} />`;
}

/** @param {import("../parts.js").Key} key */
function StateOf({ state }) {
  if (state === "active") return html`<${Chip} tone="ran" icon="check">${t("key.active")}<//>`;
  return html`<${Chip} icon=${state === "revoked" ? "cross" : "clock"}>${t(`key.${state}`)}<//>`;
}

/** @param {import("../parts.js").Key} key */
function roleOf({ scopes }) {
  if (scopes.includes("admin:write")) return common("role.admin");
  if (scopes.includes("admin:approve")) return common("role.operator");
  return common(scopes.includes("admin:read") ? "role.auditor" : "role.user");
}

function All() {
  const keys = useLoad(`${API}/keys?limit=500`);
  const [creates, setCreates] = useState(false);
  const [created, setCreated] = useState(/** @type {import("../parts.js").Key | null} */ (null));
  const [search, setSearch] = useState("");
  /** @type {import("../parts.js").Key[]} */
  const all = keys.data ?? [];
  const found = all.filter((each) => `${each.id} ${each.user} ${each.name}`.toLowerCase().includes(search.toLowerCase()));
  const tools =
    may("admin:write") &&
    html`<button class="button main" onClick=${() => setCreates(true)}><${Icon} name="plus" />${t("key.create")}</button>`;
  return html`<${Screen} title=${t("nav.keys")} about=${keys.data && t("keys.about", { n: all.length })} tools=${tools}>
    ${!keys.data && html`<${Missing} of=${keys} />`}
    ${keys.data &&
    html`<div class="stack tight">
      <input class="input narrow" type="search" aria-label=${t("keys.search")} placeholder=${t("keys.search")} value=${search}
        onInput=${typed(setSearch)} />
      <section class="box">
        ${found.length === 0
          ? html`<p class="empty"><strong>${t("keys.none")}</strong>${all.length ? t("keys.none.search") : t("keys.none.why")}</p>`
          : html`<div class="scroll-x" tabindex="0" role="region" aria-label=${t("nav.keys")}><table>
              <thead><tr><th>${t("key.state")}</th><th>${t("key.user")}</th><th>${t("key.name")}</th><th class="wide">${t("key.role")}</th>
                <th class="wide">${t("key.scopes")}</th><th>${t("key.used")}</th><th>${t("key.expires")}</th></tr></thead>
              <tbody>${found.map((each) => html`<tr>
                <td class="tight"><${StateOf} ...${each} /></td>
                <td>${each.user.replace(/^user:/, "")}</td>
                <td><${Link} to=${`/gateway/keys/${each.id}`}>${each.name ? html`<${Foreign} text=${each.name} />` : html`<span class="mono">${each.id}</span>`}<//></td>
                <td class="tight wide">${roleOf(each)}</td>
                <td class="mono small wide">${each.scopes.join(" ")}</td>
                <td class="tight muted">${each.lastUsed ? ago(each.lastUsed) : t("key.never")}</td>
                <td class="tight muted">${each.expires ? ago(each.expires) : t("key.no.end")}</td>
              </tr>`)}</tbody>
            </table></div>`}
      </section>
    </div>`}
    ${creates && html`<${Create} close=${() => setCreates(false)} done=${(/** @type {any} */ key) => {
      setCreates(false);
      setCreated(key);
      void keys.reload();
    }} />`}
    ${created && html`<${Shown} of=${created} close=${() => setCreated(null)} />`}
  <//>`;
}

/** @param {{close: () => void, done: (key: import("../parts.js").Key) => void}} props */
function Create({ close, done }) {
  const id = useId();
  const [user, setUser] = useState("");
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(/** @type {string[]} */ (["mcp:read"]));
  const [more, setMore] = useState("");
  const [expires, setExpires] = useState("90d");
  const [rate, setRate] = useState("");
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));

  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    setError(null);
    const wanted = [...scopes, ...more.split(/[\s,]+/).filter(Boolean)];
    try {
      done(await post(`${API}/keys`, { user, name, scopes: wanted, expires, rate }));
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setError(problem);
    }
  }
  return html`<${Dialog} title=${t("key.create")} close=${close}>
    <form class="stack" onSubmit=${submit}>
      <div class="field"><label for=${`${id}-user`}>${t("key.user")}</label>
        <input id=${`${id}-user`} class="input" required value=${user} onInput=${typed(setUser)} autocomplete="off" /></div>
      <div class="field"><label for=${`${id}-name`}>${t("key.name")}</label>
        <input id=${`${id}-name`} class="input" value=${name} onInput=${typed(setName)} autocomplete="off" />
        <span class="hint">${t("key.name.hint")}</span></div>
      <fieldset class="field"><legend>${t("key.scopes")}</legend>
        ${SCOPES.map((scope) => html`<label class="check"><input type="checkbox" checked=${scopes.includes(scope)}
          onChange=${() => setScopes(scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope])} />
          <span><span class="mono">${scope}</span> <span class="muted small">${t(`scope.${scope}`)}</span></span></label>`)}
        <label class="hint" for=${`${id}-more`}>${t("key.more")}</label>
        <input id=${`${id}-more`} class="input mono" placeholder="mcp:crm:refund" value=${more} onInput=${typed(setMore)} autocomplete="off" />
      </fieldset>
      <div class="row wrap">
        <div class="field grow"><label for=${`${id}-expires`}>${t("key.expires")}</label>
          <select id=${`${id}-expires`} value=${expires} onChange=${typed(setExpires)}>
            ${["7d", "30d", "90d", "365d", "never"].map((each) => html`<option value=${each}>${t(/** @type {any} */ (`expires.${each}`))}</option>`)}
          </select></div>
        <div class="field grow"><label for=${`${id}-rate`}>${t("key.rate")}</label>
          <input id=${`${id}-rate`} class="input mono" placeholder="20/s" value=${rate} onInput=${typed(setRate)} /></div>
      </div>
      ${error && html`<${Problem} error=${error} />`}
      <div class="actions">
        <button class="button" type="button" onClick=${close}>${common("cancel")}</button>
        <button class="button main">${t("key.create")}</button>
      </div>
    </form>
  <//>`;
}

/**
 * The new key. It cannot be shown a second time.
 * @param {{of: import("../parts.js").Key, close: () => void}} props
 */
function Shown({ of, close }) {
  return html`<${Dialog} title=${t("key.new")} close=${close}>
    <p>${t("key.once", { user: of.user })}</p>
    <div class="secret" aria-label=${t("key.new")}>${of.key}</div>
    <div class="actions">
      <${Copy} text=${of.key ?? ""} class="button" />
      <button class="button main" onClick=${close}>${t("key.stored")}</button>
    </div>
  <//>`;
}

/** @param {{id: string}} props */
function One({ id }) {
  const path = `${API}/keys/${encodeURIComponent(id)}`;
  const key = useLoad(path);
  const usage = useLoad(`${API}/usage?key=${encodeURIComponent(id)}`);
  const reach = useLoad(`${API}/tools?limit=500&key=${encodeURIComponent(id)}`);
  const [asks, setAsks] = useState("");
  const [created, setCreated] = useState(/** @type {import("../parts.js").Key | null} */ (null));
  /** @type {import("../parts.js").Key | null} */
  const found = key.data;
  const tools =
    found?.state === "active" &&
    may("admin:write") &&
    html`<button class="button" onClick=${() => setAsks("rotate")}><${Icon} name="turning" />${t("key.rotate")}</button>
      <button class="button danger" onClick=${() => setAsks("revoke")}><${Icon} name="cross" />${t("key.revoke")}</button>`;
  return html`<${Screen} title=${found ? found.name || found.user : t("nav.keys")} about=${id} tools=${tools}>
    ${!found && html`<${Missing} of=${key} />`}
    ${found &&
    html`<div class="stack">
      <section class="box">
        <div class="box-head"><${StateOf} ...${found} /><strong>${found.user}</strong><span class="muted">${roleOf(found)}</span></div>
        <dl class="facts box-body">
          <dt>${t("key.scopes")}</dt><dd class="mono">${found.scopes.join(" ")}</dd>
          ${found.view && html`<dt>${t("key.view")}</dt><dd class="mono">${found.view}</dd>`}
          <dt>${t("key.created")}</dt><dd>${day(found.created)}</dd>
          <dt>${t("key.expires")}</dt><dd>${found.expires ? `${day(found.expires)}, ${ago(found.expires)}` : t("key.no.end")}</dd>
          <dt>${t("key.used")}</dt><dd>${found.lastUsed ? ago(found.lastUsed) : t("key.never")}</dd>
          ${found.replacedBy && html`<dt>${t("key.replaced")}</dt><dd><${Link} to=${`/gateway/keys/${found.replacedBy}`}>${found.replacedBy}<//></dd>`}
          <dt>${t("nav.audit")}</dt><dd><${Link} to=${`/gateway/audit?key=${id}`}>${t("key.calls")}<//></dd>
        </dl>
      </section>
      ${usage.data && html`<${Usage} of=${usage.data} />`}
      <${Reach} of=${reach} id=${id} />
    </div>`}
    ${asks === "revoke" &&
    html`<${Confirm} title=${t("key.revoke.ask", { user: found?.user ?? "" })} does=${t("key.revoke")} danger close=${() => setAsks("")}
      act=${async () => {
        await request("DELETE", path);
        await key.reload();
      }}><p>${t("key.revoke.why")}</p><//>`}
    ${asks === "rotate" &&
    html`<${Confirm} title=${t("key.rotate.ask", { user: found?.user ?? "" })} does=${t("key.rotate")} close=${() => setAsks("")}
      act=${async () => {
        setCreated(await post(`${path}/rotate`));
        await key.reload();
      }}><p>${t("key.rotate.why")}</p><//>`}
    ${created && html`<${Shown} of=${created} close=${() => setCreated(null)} />`}
  <//>`;
}

/**
 * How much of its limits a key has used.
 * @param {{of: any}} props
 */
export function Usage({ of }) {
  return html`<section class="box" aria-labelledby="usage-title">
    <div class="box-head"><h2 id="usage-title">${t("nav.limits")}</h2></div>
    <ul class="plain-list">
      <li class="limit"><span>${t("limit.concurrent")}</span>
        <meter min="0" max=${of.concurrent} value=${of.running} aria-label=${t("limit.concurrent")}></meter>
        <span class="number">${t("limit.of", { n: of.running, limit: of.concurrent })}</span></li>
      ${(of.limits ?? []).map((/** @type {any} */ each) => {
        const top = each.burst ?? Number.parseInt(each.limit, 10);
        return html`<li class="limit"><span class="mono">${each.server ? `${each.server} ` : ""}${each.limit}</span>
          <meter min="0" max=${top} value=${top - each.left} aria-label=${each.limit}></meter>
          <span class="number">${t("limit.of", { n: top - each.left, limit: top })}</span></li>`;
      })}
    </ul>
  </section>`;
}

/** @param {{of: import("../../shared/load.js").Loaded<any>, id: string}} props */
function Reach({ of, id }) {
  if (!of.data) return html`<${Missing} of=${of} />`;
  const { tools, missing, denied } = of.data;
  return html`<section class="box" aria-labelledby="reach-title">
    <div class="box-head"><h2 id="reach-title">${t("key.reach")}</h2><span class="muted small">${t("key.reach.about", { n: tools.length })}</span></div>
    ${tools.length + missing.length + denied.length === 0
      ? html`<p class="empty"><strong>${t("tools.none")}</strong>${t("tools.none.why")}</p>`
      : html`<${ToolList} of=${of.data} query=${`?key=${id}`} />`}
  </section>`;
}
