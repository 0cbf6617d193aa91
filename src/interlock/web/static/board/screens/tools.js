// Tools: what a key or a user sees, one tool with its definition, and why a key may call it or not.

import { html, useEffect, useState } from "../../shared/view.js";
import { ApiError, post } from "../../shared/api.js";
import { typed as valueOf } from "../../shared/exact.js";
import { count, duration } from "../../shared/format.js";
import { JsonView } from "../../shared/json.js";
import { Missing, Problem, useLoad } from "../../shared/load.js";
import { Address, Foreign } from "../../shared/marks.js";
import { Chip } from "../../shared/outcomes.js";
import { go } from "../../shared/route.js";
import { me } from "../../shared/session.js";
import { API, Explained, Link, ToolList, toolPath, typed, words } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

/** @param {{address?: string, query: URLSearchParams}} props */
export default function Tools({ address, query }) {
  return address === undefined ? html`<${All} query=${query} />` : html`<${One} address=${address} query=${query} />`;
}

/** @param {string} owner "key:ID" or a user. @returns {Record<string, string>} */
function parameterOf(owner) {
  return owner.startsWith("key:") ? { key: owner.slice(4) } : { user: owner };
}

const own = () => (me.value ? me.value.user : "");

/** Return the query of a tool's page that explains it for an owner. @param {string} owner */
function queryFor(owner) {
  const { key } = parameterOf(owner);
  return key ? `?key=${key}` : owner === own() ? "" : `?as=${encodeURIComponent(owner)}`;
}

/**
 * Choose a key or the person who is signed in; another user is chosen by the address.
 * @param {{label: string, chosen: string, choose: (owner: string) => void, keys: import("../parts.js").Key[]}} props
 */
function Owner({ label, chosen, choose, keys }) {
  const isOther = chosen !== own() && !keys.some((each) => chosen === `key:${each.id}`);
  return html`<select aria-label=${label} value=${chosen}
    onChange=${typed(choose)}>
    <option value=${own()}>${t("tools.me", { user: own() })}</option>
    ${isOther && html`<option value=${chosen}>${chosen.startsWith("key:") ? chosen : t("tools.user", { user: chosen })}</option>`}
    ${keys.map((each) => html`<option value=${`key:${each.id}`}>${t("tools.key", { key: each.name || each.id, user: each.user })}</option>`)}
  </select>`;
}

/** @param {{query: URLSearchParams}} props */
function All({ query }) {
  const owner = query.get("as") ?? own();
  const search = query.get("q") ?? "";
  const keys = useLoad(`${API}/keys?limit=500&state=active`);
  const tools = useLoad(`${API}/tools?${new URLSearchParams({ limit: "500", ...parameterOf(owner), ...(search && { q: search }) })}`);
  /** @param {Record<string, string>} change */
  const to = (change) => {
    const next = new URLSearchParams(query);
    for (const [name, value] of Object.entries(change)) value ? next.set(name, value) : next.delete(name);
    go(`/gateway/tools?${next}`, { replace: "q" in change });
  };
  const found = tools.data;
  return html`<${Screen} title=${t("nav.tools")} about=${found && t("tools.about", { n: found.tools.length })}>
    <div class="stack tight">
      <div class="row wrap">
        <input class="input narrow" type="search" aria-label=${t("tools.search")} placeholder=${t("tools.search")} value=${search}
          onInput=${typed((q) => to({ q }))} />
        <${Owner} label=${t("tools.as")} chosen=${owner} choose=${(/** @type {string} */ as) => to({ as })} keys=${keys.data ?? []} />
      </div>
      ${!found && html`<${Missing} of=${tools} />`}
      ${found && html`<section class="box">
        ${found.tools.length + found.missing.length + found.denied.length === 0
          ? html`<p class="empty"><strong>${t("tools.none")}</strong>${t(found.reason === "no_match" ? "tools.none.search" : "tools.none.why")}</p>`
          : html`<${ToolList} of=${found} query=${queryFor(owner)} />`}
      </section>`}
    </div>
  <//>`;
}

/** @param {{address: string, query: URLSearchParams}} props */
function One({ address, query }) {
  const cut = address.indexOf(":");
  const [server, name] = [address.slice(0, cut), address.slice(cut + 1)];
  const owner = query.get("key") ? `key:${query.get("key")}` : (query.get("as") ?? own());
  const keys = useLoad(`${API}/keys?limit=500&state=active`);
  const pin = useLoad(`${API}/lock/${encodeURIComponent(server)}/${encodeURIComponent(name)}`);
  const series = useLoad(`${API}/audit/series?by=tool&since=24h&buckets=24`);
  const line = series.data?.lines.find((/** @type {any} */ each) => each.name === address);
  const shown = Array.isArray(pin.data) ? pin.data[0] : pin.data;
  const definition = shown?.accepted ?? shown?.seen;
  return html`<${Screen} title=${html`<${Address} address=${address} />`}>
    <div class="two">
      <div class="stack">
        <section class="box" aria-label=${t("tool.definition")}>
          <div class="box-head"><h2>${t("tool.definition")}</h2>
            ${shown && html`<${PinChip} state=${shown.state} />`}
            <div class="end">
              <${Link} to=${`/gateway/audit?tool=${encodeURIComponent(address)}`}>${t("tool.calls")}<//>
            </div>
          </div>
          <div class="box-body stack tight">
            ${definition?.description && html`<p class="text"><${Foreign} text=${definition.description} /></p>`}
            ${definition ? html`<${JsonView} value=${definition.inputSchema ?? {}} open=${3} />` : html`<p class="muted">${t("tool.unpinned")}</p>`}
          </div>
        </section>
        <section class="box" aria-label=${t("tool.use")}>
          <div class="box-head"><h2>${t("tool.use")}</h2></div>
          ${line
            ? html`<dl class="facts box-body">
                <dt>${t("figure.calls")}</dt><dd>${count(line.total.calls)}</dd>
                <dt>${t("tool.median")}</dt><dd>${duration(line.total.p50)}</dd>
                <dt>${t("figure.p95")}</dt><dd>${duration(line.total.p95)}</dd>
              </dl>`
            : html`<p class="empty">${t("tool.unused")}</p>`}
        </section>
        <${WhoCan} address=${address} keys=${keys.data ?? []} />
      </div>
      <${Explain} address=${address} owner=${owner} keys=${keys.data ?? []} />
    </div>
  <//>`;
}

/** @param {{state: string}} props */
function PinChip({ state }) {
  const waits = state === "changed" || state === "new";
  return html`<${Chip} tone=${waits ? "held" : "ran"} icon="pin">${words(state)}<//>`;
}

/**
 * Explain for a key: the decision with each of its checks.
 * @param {{address: string, owner: string, keys: import("../parts.js").Key[]}} props
 */
function Explain({ address, owner, keys }) {
  const [text, setText] = useState("");
  const [found, setFound] = useState(/** @type {import("../parts.js").Explanation | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [problem, setProblem] = useState("");

  async function explain() {
    let given;
    try {
      given = text.trim() ? valueOf(text) : undefined;
      setProblem("");
    } catch (failed) {
      setProblem(failed instanceof SyntaxError ? t("explain.json") : /** @type {Error} */ (failed).message);
      return;
    }
    try {
      setFound(await post(`${API}/explain`, { ...parameterOf(owner), address, ...(given && { arguments: given }) }));
      setError(null);
    } catch (failed) {
      if (!(failed instanceof ApiError)) throw failed;
      setError(failed);
    }
  }
  useEffect(() => void explain(), [address, owner]);

  const who = owner.startsWith("key:") ? `--key ${owner.slice(4)}` : `--user ${owner.replace(/^user:/, "")}`;
  const quoted = text.trim() ? ` --arguments '${text.trim().replaceAll("'", "'\\''")}'` : "";
  return html`<section class="box explain">
    <div class="box-head"><h2>${t("explain.for")}</h2>
      <${Owner} label=${t("explain.for")} chosen=${owner} keys=${keys}
        choose=${(/** @type {string} */ chosen) => go(toolPath(address) + queryFor(chosen), { replace: true })} />
    </div>
    <div class="box-body stack tight">
      <form class="field" onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        void explain();
      }}>
        <label for="explain-arguments">${t("explain.arguments")}</label>
        <div class="row">
          <input id="explain-arguments" class="input mono" placeholder='{"amount": 80}' value=${text} aria-invalid=${String(Boolean(problem))}
            onInput=${typed(setText)} />
          <button class="button">${t("explain.do")}</button>
        </div>
        ${problem && html`<span class="problem" role="alert">${problem}</span>`}
      </form>
      ${error && html`<${Problem} error=${error} again=${explain} />`}
      ${found && html`<${Explained} of=${found} command=${`interlock explain ${who} ${address}${quoted}`} />`}
    </div>
  </section>`;
}

/**
 * Which keys may call a tool, asked of the same decision.
 * @param {{address: string, keys: import("../parts.js").Key[]}} props
 */
function WhoCan({ address, keys }) {
  const [found, setFound] = useState(/** @type {Map<string, import("../parts.js").Explanation> | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  async function ask() {
    setError(null);
    try {
      const answers = await Promise.all(
        keys.map(async (key) => /** @type {const} */ ([key.id, await post(`${API}/explain`, { key: key.id, address })])),
      );
      setFound(new Map(answers));
    } catch (failed) {
      if (!(failed instanceof ApiError)) throw failed;
      setError(failed);
    }
  }
  return html`<section class="box" aria-label=${t("tool.who")}>
    <div class="box-head"><h2>${t("tool.who")}</h2>
      <div class="end"><button class="link" onClick=${ask} disabled=${keys.length === 0}>${t("tool.who.ask", { n: keys.length })}</button></div></div>
    ${error && html`<${Problem} error=${error} again=${ask} />`}
    ${found && html`<ul class="plain-list">
      ${keys.map((key) => {
        const answer = found.get(key.id);
        if (!answer) return null;
        const [tone, icon] = answer.effect === "allow" ? ["ran", "check"] : answer.effect === "ask" ? ["asking", "pause"] : ["quiet", "lock"];
        return html`<li><${Chip} tone=${tone} icon=${icon}>${t(`effect.${answer.effect}`)}<//>
          <${Link} to=${`${toolPath(address)}?key=${key.id}`}>${key.name || key.user}<//>
          <span class="muted small">${words(answer.reason ?? "")}</span></li>`;
      })}
    </ul>`}
  </section>`;
}
