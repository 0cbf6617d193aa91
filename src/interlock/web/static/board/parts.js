// What several screens of the board use: paths of the API, states of servers, explanations.

import { html } from "../shared/view.js";
import { Icon } from "../shared/icons.js";
import { Address, Foreign } from "../shared/marks.js";
import { Chip } from "../shared/outcomes.js";
import { Copy } from "../shared/dialog.js";
import { t as common } from "../shared/text.js";
import { t } from "./text.js";

export const API = "/admin/api/v1";

/** The outcomes in the order of a bar, from the bottom. */
const OUTCOMES = ["ran", "stopped", "refused", "limited", "held", "asking", "failed"];

/**
 * @typedef {object} Server
 * @property {string} name
 * @property {string} state
 * @property {string | null} reason
 * @property {string | null} revision
 * @property {number} tools
 * @property {number} instances
 * @property {number} calls
 * @property {number} queue
 */

/**
 * @typedef {object} Gateway One of the gateways of a shared database.
 * @property {string} id
 * @property {string} host
 * @property {string} version
 * @property {string} hash
 * @property {string} loaded
 * @property {string | null} error
 * @property {boolean} isThis
 * @property {boolean} differs
 */

/**
 * @typedef {object} Key
 * @property {string} id
 * @property {string} user
 * @property {string} name
 * @property {string[]} scopes
 * @property {string} [view]
 * @property {Record<string, string>} [limits]
 * @property {string} created
 * @property {string} [expires]
 * @property {string} [lastUsed]
 * @property {"active" | "expired" | "revoked"} state
 * @property {string} [replacedBy]
 * @property {string} [key] The key itself, in the answer that creates it.
 */

/**
 * @typedef {object} Needs What needs somebody.
 * @property {Server[]} servers
 * @property {{tool: string, user: string, created: string}[]} approvals Oldest first.
 * @property {{server: string, tool?: string, state: string}[]} definitions
 * @property {{id: string, user: string, expires: string}[]} keys
 */

/** @typedef {{needs: Needs, waiting: {approvals: number, definitions: number}}} Waits */

/**
 * @typedef {object} Line
 * @property {string} name
 * @property {number[]} calls
 * @property {(number | null)[]} p95
 * @property {{calls: number, bytes: number, p50: number | null, p95: number | null, p99: number | null}} total
 */

/**
 * @typedef {object} Series
 * @property {string} since
 * @property {number} step
 * @property {Line[]} lines
 * @property {Line} total
 */

/** @type {Record<string, {tone: import("../shared/outcomes.js").Tone, icon: import("../shared/icons.js").IconName}>} */
const STATES = {
  ready: { tone: "ran", icon: "check" },
  starting: { tone: "running", icon: "turning" },
  disabled: { tone: "quiet", icon: "minus" },
  needs_login: { tone: "asking", icon: "lock" },
  held: { tone: "held", icon: "pin" },
};

/**
 * The state of a server as a word with its glyph.
 * @param {{state: string}} props
 */
export function StateChip({ state }) {
  const shown = state === "ok" ? "ready" : state;
  const { tone, icon } = STATES[shown] ?? { tone: "failed", icon: "cross" };
  return html`<${Chip} tone=${tone} icon=${icon}>${words(shown)}<//>`;
}

/**
 * Return a stable word as people read it: "server_down" is "server down".
 * @param {string} word
 */
export function words(word) {
  return word.replaceAll("_", " ");
}

/**
 * Return the chart of a series: its buckets with the count of each line.
 * @param {Series} series
 * @returns {import("../shared/chart.js").Bucket[]}
 */
export function bucketsOf(series) {
  const begin = new Date(series.since).getTime();
  return series.total.calls.map((_, index) => ({
    at: new Date(begin + index * series.step * 1000).toISOString(),
    counts: Object.fromEntries(series.lines.map((line) => [line.name, line.calls[index] ?? 0])),
  }));
}

/** @param {Series} series */
export function partsOf(series) {
  return OUTCOMES.filter((each) => series.lines.some((line) => line.name === each));
}

/** @param {string} part */
export const nameOf = (part) => common(/** @type {any} */ (`outcome.${part}`)).toLowerCase();

/**
 * @typedef {object} Step
 * @property {string} step
 * @property {"ok" | "ask" | "deny" | "not_reached"} verdict
 * @property {string} detail
 *
 * @typedef {object} Explanation
 * @property {"allow" | "ask" | "deny"} effect
 * @property {string} [reason]
 * @property {string} [rule]
 * @property {Step[]} steps
 * @property {string} [change]
 * @property {boolean} [uncertain] A rule depends on arguments, and none were given.
 */

/** @type {Record<string, [import("../shared/outcomes.js").Tone, import("../shared/icons.js").IconName]>} */
const VERDICTS = {
  ok: ["ran", "check"],
  ask: ["asking", "pause"],
  deny: ["failed", "cross"],
  not_reached: ["quiet", "minus"],
};

/**
 * Why a call would be made or not: each check with its fact, and what would change it.
 * @param {{of: Explanation, command?: string}} props
 */
export function Explained({ of, command }) {
  const effect = of.uncertain ? "uncertain" : of.effect;
  const first = of.steps.find((each) => each.verdict === "deny") ?? null;
  return html`
    <div class="note ${effect === "allow" ? "tone-ran" : effect === "deny" ? "tone-failed" : "tone-asking"}" role="status">
      <${Icon} name=${effect === "allow" ? "check" : effect === "deny" ? "lock" : effect === "ask" ? "pause" : "question"} />
      <div class="grow">${t(`explain.${effect}`, { reason: words(of.reason ?? "") })} ${effect === "deny" && first && html`<br /><${Foreign} text=${first.detail} />`}</div>
    </div>
    <ol class="steps" aria-label=${t("explain.steps")}>
      ${of.steps.map((each) => {
        const [tone, icon] = VERDICTS[each.verdict] ?? ["quiet", "minus"];
        const kind = each === first ? "first-no" : each.verdict === "not_reached" ? "unreached" : "";
        return html`<li class=${kind} data-step=${each.step} data-verdict=${each.verdict}>
          <span class=${`glyph tone-${tone}`}><${Icon} name=${icon} label=${t(`verdict.${each.verdict}`)} /></span>
          <div>
            <strong>${words(each.step)}</strong>
            <p>${each.verdict === "not_reached" ? t("explain.unreached") : html`<${Foreign} text=${each.detail} />`}</p>
          </div>
        </li>`;
      })}
    </ol>
    ${of.change &&
    html`<div class="note">
      <${Icon} name="key" />
      <div class="grow">${t("explain.change")} <${Foreign} text=${of.change} /></div>
    </div>`}
    ${command && html`<div class="row wrap"><code class="grow small">${command}</code><${Copy} text=${command} label=${t("copy.command")} /></div>`}
  `;
}

/**
 * What a key or a user sees of the tools, with what is missing and what it may not call.
 * @param {{of: any, query: string}} props `query`: of the links, which explain each.
 */
export function ToolList({ of, query }) {
  const link = (/** @type {string} */ address) => html`<${Link} to=${toolPath(address) + query}><${Address} address=${address} /><//>`;
  return html`<ul class="plain-list">
    ${of.tools.map((/** @type {any} */ each) => html`<li class="tool">
      ${link(each.address)}
      <${Chip}>${t(each.risk === "read" ? "tool.reads" : "tool.writes")}<//>
      ${each.effect === "ask" && html`<${Chip} tone="asking" icon="pause">${t("tool.asks")}<//>`}
      ${each.state !== "ok" && html`<${Chip} tone="asking" icon="clock">${words(each.state)}<//>`}
      <span class="muted small grow line-1">${each.description && html`<${Foreign} text=${each.description} />`}</span>
    </li>`)}
    ${of.missing.map((/** @type {any} */ each) => html`<li class="tool">
      ${link(each.address)}
      <${Chip} tone=${each.reason === "tool_quarantined" ? "held" : "failed"} icon=${each.reason === "tool_quarantined" ? "pin" : "cross"}>${words(each.reason)}<//>
      <span class="muted small grow"><${Foreign} text=${each.detail ?? ""} /></span>
    </li>`)}
    ${of.denied.map((/** @type {string} */ address) => html`<li class="tool">
      ${link(address)}
      <${Chip} icon="lock">${t("effect.deny")}<//>
      <${Link} to=${toolPath(address) + query} class="small">${t("tools.why")}<//>
    </li>`)}
  </ul>`;
}

/**
 * A link to a screen of the board.
 * @param {{to: string, children?: any, class?: string}} props
 */
export function Link({ to, children, class: kind }) {
  return html`<a href=${to} class=${kind}>${children}</a>`;
}

/** @param {string} address */
export function toolPath(address) {
  return `/gateway/tools/${encodeURIComponent(address)}`;
}

/**
 * Return a handler that passes on what was typed or chosen in a control.
 * @param {(value: string) => void} set
 */
export function typed(set) {
  return (/** @type {Event} */ event) => set(/** @type {HTMLInputElement} */ (event.currentTarget).value);
}
