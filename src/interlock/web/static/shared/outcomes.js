// The eight outcomes of a call: one word, glyph and colour for each, on every page.

import { html } from "./view.js";
import { Icon } from "./icons.js";
import { t } from "./text.js";

/** @typedef {"asking"|"running"|"ran"|"failed"|"refused"|"limited"|"held"|"stopped"} Outcome */
/** @typedef {"ran"|"asking"|"failed"|"held"|"running"|"limited"|"accent"|"quiet"} Tone */

/** @type {Record<Outcome, {icon: import("./icons.js").IconName, tone: Tone}>} */
export const OUTCOMES = {
  asking: { icon: "pause", tone: "asking" },
  running: { icon: "turning", tone: "running" },
  ran: { icon: "check", tone: "ran" },
  failed: { icon: "cross", tone: "failed" },
  refused: { icon: "lock", tone: "quiet" },
  limited: { icon: "gauge", tone: "limited" },
  held: { icon: "pin", tone: "held" },
  stopped: { icon: "square", tone: "quiet" },
};

export const LIMITED = new Set([
  "rate_limited",
  "overloaded",
  "tool_rate_limited",
  "quota_exceeded",
  "queue_timeout",
]);

/**
 * Return the outcome of a call from the status and reason of its record.
 * @param {string | null | undefined} status
 * @param {string | null | undefined} reason
 * @returns {Outcome}
 */
export function outcomeOf(status, reason) {
  if (reason === "tool_quarantined") return "held";
  if (reason && LIMITED.has(reason)) return "limited";
  if (status === "asked") return "asking";
  if (status === "running") return "running";
  if (status === "ok") return "ran";
  if (status === "cancelled") return "stopped";
  if (status === "tool_error" || status === "error") return "failed";
  if (status === "timeout" || status === "unfinished") return "failed";
  return "refused";
}

/**
 * A word with its glyph.
 * @param {{tone?: Tone, icon?: import("./icons.js").IconName, children?: any}} props
 */
export function Chip({ tone = "quiet", icon, children }) {
  return html`<span class=${`chip tone-${tone}`}>
    ${icon && html`<${Icon} name=${icon} />`}${children}
  </span>`;
}

/** @param {{state: Outcome, reason?: string | null}} props */
export function OutcomeChip({ state, reason }) {
  // It runs when the client calls again: nobody at a page has anything left to do.
  const isApproved = state === "asking" && reason === "approval_approved";
  const { icon, tone } = OUTCOMES[isApproved ? "ran" : state];
  return html`<${Chip} tone=${tone} icon=${icon}>${t(isApproved ? "outcome.approved" : `outcome.${state}`)}<//>`;
}
