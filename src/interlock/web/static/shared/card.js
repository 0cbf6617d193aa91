// The card of a call: the same for the chat, approvals, the audit trail and the inspector.

import { html, useId, useState } from "./view.js";
import { Icon } from "./icons.js";
import { Address, Foreign } from "./marks.js";
import { OutcomeChip } from "./outcomes.js";
import { duration } from "./format.js";

/**
 * @typedef {object} CallHead
 * @property {string} id
 * @property {import("./outcomes.js").Outcome} state
 * @property {string} address "server:tool"
 * @property {string | null} [reason]
 * @property {string} [summary] One line.
 * @property {number | null} [ms] How long it took.
 * @property {any} [end] What stands at the end of the line in place of the duration.
 */

/**
 * Head line: outcome, address, summary, duration. Waiting and failed cards are open at first.
 * @param {{call: CallHead, open?: boolean, children?: any}} props
 *   Without `children` the card cannot be opened.
 */
export function CallCard({ call, open, children }) {
  const [isOpen, setOpen] = useState(open ?? (call.state === "asking" || call.state === "failed"));
  const body = useId();
  const line = html`
    <${OutcomeChip} state=${call.state} reason=${call.reason} />
    <${Address} address=${call.address} />
    <span class="summary">${call.summary && html`<${Foreign} text=${call.summary} />`}</span>
    <span class="took">${call.end ?? (call.ms === undefined ? null : duration(call.ms))}</span>
  `;
  return html`<article class="call" data-call=${call.id} data-state=${call.state} aria-label=${call.address}>
    ${children
      ? html`<button
          type="button"
          class="call-head"
          aria-expanded=${String(isOpen)}
          aria-controls=${body}
          onClick=${() => setOpen(!isOpen)}
        >
          ${line}<${Icon} name="right" class="turn" />
        </button>`
      : html`<div class="call-head">${line}</div>`}
    ${children && isOpen && html`<div class="call-body" id=${body}>${children}</div>`}
  </article>`;
}
