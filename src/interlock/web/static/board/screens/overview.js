// The overview: what is broken, for whom, and why.

import { html, useEffect, useState } from "../../shared/view.js";
import { Legend, Spark, StackedBars } from "../../shared/chart.js";
import { ago, count, duration, percent } from "../../shared/format.js";
import { Missing, useLoad } from "../../shared/load.js";
import { Address, Foreign } from "../../shared/marks.js";
import { Chip } from "../../shared/outcomes.js";
import { go } from "../../shared/route.js";
import { t as common } from "../../shared/text.js";
import { API, bucketsOf, Link, nameOf, partsOf, StateChip, typed } from "../parts.js";
import { Screen, waiting, waitingIn } from "../side.js";
import { t } from "../text.js";

const RANGES = /** @type {const} */ (["1h", "24h", "7d", "30d"]);
const EVERY = 30_000;

/** @param {{query: URLSearchParams}} props */
export default function Overview({ query }) {
  const range = RANGES.find((each) => each === query.get("range")) ?? "24h";
  const overview = useLoad(`${API}/overview?range=${range}`, { every: EVERY });
  const [asTable, setAsTable] = useState(false);

  /** @type {{figures: Figured, series: import("../parts.js").Series, servers: import("../parts.js").Server[], gateways: import("../parts.js").Gateway[]} & import("../parts.js").Waits | null} */
  const found = overview.data;
  useEffect(() => {
    if (found) waiting.value = waitingIn(found);
  }, [found]);

  const tools = html`<select
    aria-label=${t("range")}
    value=${range}
    onChange=${typed((chosen) => go(`/gateway?range=${chosen}`))}
  >
    ${RANGES.map((each) => html`<option value=${each}>${t(`range.${each}`)}</option>`)}
  </select>`;
  return html`<${Screen} title=${t("nav.overview")} tools=${tools}>
    <div class="stack">
      ${found ? html`<${Figures} of=${found} range=${range} />` : html`<${Missing} of=${overview} />`}
      <div class="two">
        <section class="box" aria-labelledby="chart-title">
          <div class="box-head">
            <h2 id="chart-title">${t("overview.chart")}</h2>
            <div class="end">
              ${found && html`<${Legend} parts=${partsOf(found.series)} names=${nameOf} />`}
              <button class="link" onClick=${() => setAsTable(!asTable)}>
                ${common(asTable ? "chart.chart" : "chart.table")}
              </button>
            </div>
          </div>
          <div class="box-body">
            ${found &&
            html`<${StackedBars}
              label=${t("overview.chart")}
              buckets=${bucketsOf(found.series)}
              parts=${partsOf(found.series)}
              names=${nameOf}
              asTable=${asTable}
              height=${190}
              choose=${(/** @type {string} */ since, /** @type {string} */ until) =>
                go(`/gateway/audit?${new URLSearchParams({ since, until })}`)}
            />`}
          </div>
        </section>
        ${found && html`<${NeedsYou} of=${found} />`}
      </div>
      ${found && html`<${Servers} servers=${found.servers} />`}
      ${found && found.gateways.length > 1 && html`<${Gateways} gateways=${found.gateways} />`}
    </div>
  <//>`;
}

/**
 * @typedef {object} Figured
 * @property {number} calls
 * @property {number} failed
 * @property {number} refused
 * @property {number | null} p50
 * @property {number | null} p95
 * @property {number | null} [ownP95] What the gateway itself took, in milliseconds.
 */

/** @param {{name: string, calls: number[]}[]} lines @param {string} name */
function sumOf(lines, name) {
  return lines.find((each) => each.name === name)?.calls.reduce((a, b) => a + b, 0) ?? 0;
}

/** @param {import("../parts.js").Series} series @param {string[]} names @returns {number[]} */
function sparkOf(series, names) {
  return series.total.calls.map((_, index) =>
    series.lines.filter((each) => names.includes(each.name)).reduce((sum, each) => sum + (each.calls[index] ?? 0), 0),
  );
}

/** @param {{of: {figures: Figured, series: import("../parts.js").Series, waiting: import("../parts.js").Waits["waiting"]}, range: typeof RANGES[number]}} props */
function Figures({ of: { figures: { calls, failed, refused, p50, p95, ownP95 }, series, waiting: waits }, range }) {
  const limited = sumOf(series.lines, "limited");
  const held = waits.approvals + waits.definitions;
  const minutes = { "1h": 60, "24h": 1440, "7d": 10_080, "30d": 43_200 }[range];
  return html`<div class="figures">
    <${Figure} name=${t("figure.calls")} value=${count(calls)}
      about=${t("figure.rate", { n: Math.round((calls / minutes) * 10) / 10 })} values=${series.total.calls} />
    <${Figure} name=${t("figure.errors")} value=${calls ? percent(failed / calls) : "–"}
      about=${t("figure.failed", { n: failed })} values=${sparkOf(series, ["failed"])} tone="failed" />
    <${Figure} name=${t("figure.p95")} value=${duration(p95)} about=${ownP95 == null ? t("figure.median", { time: duration(p50) }) : t("figure.own", { time: duration(ownP95) })}
      values=${series.total.p95.map((each) => each ?? 0)} />
    <${Figure} name=${t("figure.refused")} value=${count(refused)}
      about=${t("figure.parts", { refused: refused - limited, limited, held })}
      values=${sparkOf(series, ["refused", "limited", "held"])} tone="quiet" />
  </div>`;
}

/** @param {{name: string, value: string, about: string, values: number[], tone?: string}} props */
function Figure({ name, value, about, values, tone }) {
  return html`<section class="box figure" aria-label=${name}>
    <h2>${name}</h2>
    <p class="value">${value}</p>
    <p class="small muted">${about}</p>
    <${Spark} values=${values} tone=${tone} />
  </section>`;
}

/** @param {{of: import("../parts.js").Waits}} props */
function NeedsYou({ of: { needs: { approvals, definitions: pins, servers, keys }, waiting: waits } }) {
  const oldest = approvals[0];
  const first = pins[0];
  const nothing = !approvals.length && !pins.length && !servers.length && !keys.length;
  return html`<section class="box" aria-labelledby="needs-title">
    <div class="box-head"><h2 id="needs-title">${t("needs")}</h2></div>
    ${nothing
      ? html`<p class="empty"><strong>${t("needs.none")}</strong>${t("needs.none.why")}</p>`
      : html`<ul class="needs">
          ${oldest &&
          html`<li>
            <${Chip} tone="asking" icon="pause">${t("needs.waiting", { n: waits.approvals })}<//>
            <span class="grow"><${Address} address=${oldest.tool} /> ${t("needs.for", { user: oldest.user, time: ago(oldest.created) })}</span>
            <${Link} to="/gateway/approvals">${t("needs.decide")}<//>
          </li>`}
          ${first &&
          html`<li>
            <${Chip} tone="held" icon="pin">${t("needs.held", { n: waits.definitions })}<//>
            <span class="grow"><${Address} address=${first.tool ?? first.server} /> ${t(first.state === "new" ? "needs.pin.new" : "needs.pin.changed")}</span>
            <${Link} to="/gateway/pins">${t("needs.compare")}<//>
          </li>`}
          ${servers.map(
            (each) => html`<li>
              <${StateChip} state=${each.state} />
              <span class="grow"><strong>${each.name}</strong>${each.reason && html`: <${Foreign} text=${each.reason} />`}</span>
              <${Link} to=${`/gateway/servers/${encodeURIComponent(each.name)}`}>${t("needs.look")}<//>
            </li>`,
          )}
          ${keys.map(
            (each) => html`<li>
              <${Chip} icon="key">${t("needs.expires")}<//>
              <span class="grow">${t("needs.key", { key: each.user, time: ago(each.expires) })}</span>
              <${Link} to=${`/gateway/keys/${each.id}`}>${t("needs.renew")}<//>
            </li>`,
          )}
        </ul>`}
  </section>`;
}

/** @param {{gateways: import("../parts.js").Gateway[]}} props */
function Gateways({ gateways }) {
  return html`<section class="box" aria-labelledby="gateways-title">
    <div class="box-head"><h2 id="gateways-title">${t("gateways")}</h2></div>
    <ul class="needs">
      ${gateways.map(
        ({ id, host, version, hash, loaded, error, isThis, differs }) => html`<li>
          <${Chip} tone=${error || differs ? "held" : "ran"}>${t(error ? "gateways.error" : differs ? "gateways.differs" : isThis ? "gateways.this" : "gateways.same", { error: error ?? "" })}<//>
          <span class="grow">${t("gateways.about", { host, id, version, hash, time: ago(loaded) })}</span>
        </li>`,
      )}
    </ul>
  </section>`;
}

/** @param {{state: string}} server */
const isUp = ({ state }) => state === "ok" || state === "disabled";

/** @param {{servers: import("../parts.js").Server[]}} props */
export function Servers({ servers }) {
  const up = servers.filter(isUp);
  const down = servers.length - up.length;
  const brokenFirst = [...servers.filter((each) => !isUp(each)), ...up];
  return html`<section class="box" aria-labelledby="servers-title">
    <div class="box-head">
      <h2 id="servers-title">${t("nav.servers")}</h2>
      <span class="small muted">${t("servers.about", { n: servers.length, down })}</span>
    </div>
    ${servers.length === 0
      ? html`<p class="empty"><strong>${t("servers.none")}</strong>${t("servers.none.why")}</p>`
      : html`<div class="scroll-x" tabindex="0" role="region" aria-labelledby="servers-title">
          <table>
            <thead>
              <tr>
                <th>${t("servers.state")}</th>
                <th>${t("servers.server")}</th>
                <th class="wide">${t("servers.revision")}</th>
                <th class="number wide">${t("servers.tools")}</th>
                <th class="number wide">${t("servers.running")}</th>
                <th class="number wide">${t("servers.queue")}</th>
                <th class="number wide">${t("servers.instances")}</th>
                <th>${t("servers.why")}</th>
              </tr>
            </thead>
            <tbody>
              ${brokenFirst.map(
                (each) => html`<tr data-server=${each.name}>
                  <td class="tight"><${StateChip} state=${each.state} /></td>
                  <td><${Link} to=${`/gateway/servers/${encodeURIComponent(each.name)}`} class="address name">${each.name}<//></td>
                  <td class="tight muted wide">${each.revision ?? "–"}</td>
                  <td class="number wide">${isUp(each) || each.tools === 0 ? count(each.tools) : t("servers.kept", { n: each.tools })}</td>
                  <td class="number wide">${count(each.calls)}</td>
                  <td class="number wide">${count(each.queue)}</td>
                  <td class="number wide">${count(each.instances)}</td>
                  <td class="muted long">${each.reason ? html`<${Foreign} text=${each.reason} />` : t("servers.fine")}</td>
                </tr>`,
              )}
            </tbody>
          </table>
        </div>`}
  </section>`;
}
