// Servers: the list, and one server with its state, tools and what it wrote to stderr.

import { html, useState } from "../../shared/view.js";
import { post } from "../../shared/api.js";
import { Confirm } from "../../shared/dialog.js";
import { count, duration } from "../../shared/format.js";
import { Icon } from "../../shared/icons.js";
import { Missing, Problem, useLoad } from "../../shared/load.js";
import { Address, Foreign, marked } from "../../shared/marks.js";
import { Chip } from "../../shared/outcomes.js";
import { may } from "../../shared/session.js";
import { API, Link, StateChip, toolPath, words } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";
import { Servers } from "./overview.js";

/** @param {{name?: string}} props */
export default function ServersScreen({ name }) {
  return name === undefined ? html`<${All} />` : html`<${One} name=${name} />`;
}

function All() {
  const status = useLoad(`${API}/status`, { every: 30_000 });
  return html`<${Screen} title=${t("nav.servers")}>
    ${status.data ? html`<${Servers} servers=${status.data.servers} />` : html`<${Missing} of=${status} />`}
  <//>`;
}

/** @param {{name: string}} props */
function One({ name }) {
  const path = `${API}/servers/${encodeURIComponent(name)}`;
  const server = useLoad(path, { every: 30_000 });
  const stderr = useLoad(`${path}/stderr`);
  const [asks, setAsks] = useState(false);
  const [tested, setTested] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {any} */ (null));
  const found = server.data;

  async function test() {
    setError(null);
    setTested("running");
    try {
      setTested(await post(`${path}/test`));
    } catch (problem) {
      setTested(null);
      setError(problem);
    }
    void server.reload();
  }

  const tools =
    may("admin:write") &&
    html`<button class="button" onClick=${test} disabled=${tested === "running"}><${Icon} name="play" />${t("server.test")}</button>
      <button class="button" onClick=${() => setAsks(true)}><${Icon} name="turning" />${t("server.restart")}</button>`;
  return html`<${Screen} title=${name} about=${found?.revision} tools=${tools}>
    ${!found && html`<${Missing} of=${server} />`}
    ${found &&
    html`<div class="stack">
      ${error && html`<${Problem} error=${error} />`}
      ${tested && tested !== "running" &&
      html`<div class=${`note ${tested.ok ? "tone-ran" : "tone-failed"}`} role="status">
        <${Icon} name=${tested.ok ? "check" : "cross"} />
        <div>${tested.ok ? t("server.tested", { time: duration(tested.ms) }) : html`<${Foreign} text=${tested.reason ?? ""} />`}</div>
      </div>`}
      <section class="box">
        <div class="box-head">
          <${StateChip} state=${found.state} />
          <span class="grow">${found.reason ? html`<${Foreign} text=${found.reason} />` : t("servers.fine")}</span>
        </div>
        <dl class="facts box-body">
          <dt>${t("server.sharing")}</dt><dd>${words(found.sharing ?? "")}</dd>
          <dt>${t("servers.instances")}</dt><dd>${count(found.instances)}</dd>
          <dt>${t("servers.running")}</dt><dd>${count(found.calls)}</dd>
          <dt>${t("servers.queue")}</dt><dd>${count(found.queue)}</dd>
          <dt>${t("server.starts")}</dt><dd>${found.startSeconds ? t("server.started", { n: found.starts ?? 0, time: duration(found.startSeconds * 1000) }) : t("server.tried", { n: found.starts ?? 0 })}</dd>
          ${found.retryIn > 0 && html`<dt>${t("server.circuit")}</dt><dd>${t("server.retry", { time: duration(found.retryIn * 1000) })}</dd>`}
          ${found.serverInfo?.name && html`<dt>${t("server.info")}</dt><dd><${Foreign} text=${[found.serverInfo.name, found.serverInfo.version].filter(Boolean).join(" ")} /></dd>`}
          ${found.instructions && html`<dt>${t("server.instructions")}</dt><dd><${Foreign} text=${found.instructions} /></dd>`}
        </dl>
      </section>
      <section class="box" aria-labelledby="tools-title">
        <div class="box-head"><h2 id="tools-title">${t("nav.tools")}</h2></div>
        ${(found.toolList ?? []).length + (found.unusable ?? []).length === 0
          ? html`<p class="empty">${found.reason ? t("server.tools.down") : t("server.tools.none")}</p>`
          : html`<ul class="plain-list">
              ${(found.toolList ?? []).map(
                (/** @type {any} */ each) => html`<li>
                  <${Link} to=${toolPath(each.address)}><${Address} address=${each.address} /><//>
                  ${each.stale && html`<${Chip} tone="asking" icon="clock">${t("server.stale")}<//>`}
                </li>`,
              )}
              ${(found.unusable ?? []).map(
                (/** @type {any} */ each) => html`<li>
                  <${Address} address=${`${name}:${each.name}`} />
                  <${Chip} tone="failed" icon="cross">${t("server.unusable")}<//>
                  <span class="muted small"><${Foreign} text=${each.detail ?? ""} /></span>
                </li>`,
              )}
            </ul>`}
      </section>
      <section class="box" aria-labelledby="stderr-title">
        <div class="box-head"><h2 id="stderr-title">${t("server.stderr")}</h2>
          <div class="end"><button class="link" onClick=${stderr.reload}>${t("reload")}</button></div></div>
        ${stderr.data?.text
          ? html`<pre class="tail" tabindex="0" aria-labelledby="stderr-title">${marked(stderr.data.text)}</pre>`
          : stderr.error ? html`<${Missing} of=${stderr} />` : html`<p class="empty">${t("server.stderr.none")}</p>`}
      </section>
    </div>`}
    ${asks &&
    html`<${Confirm}
      title=${t("server.restart.ask", { name })}
      does=${t("server.restart")}
      danger
      close=${() => setAsks(false)}
      act=${async () => {
        await post(`${path}/restart`);
        await server.reload();
      }}
    ><p>${t("server.restart.why", { n: found?.calls ?? 0 })}</p><//>`}
  <//>`;
}
