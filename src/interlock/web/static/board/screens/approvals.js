// Approvals: what waits with everything that is needed to decide, and what was decided.

import { html, useEffect, useRef, useState } from "../../shared/view.js";
import { ApiError, post } from "../../shared/api.js";
import { Arguments, CallCard } from "../../shared/card.js";
import { ago, duration } from "../../shared/format.js";
import { Icon } from "../../shared/icons.js";
import { isFolded } from "../../shared/json.js";
import { Missing, Problem, useLoad } from "../../shared/load.js";
import { Address, Foreign } from "../../shared/marks.js";
import { Chip } from "../../shared/outcomes.js";
import { may, me } from "../../shared/session.js";
import { t as common } from "../../shared/text.js";
import { API } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

const SETTLED = 600; // milliseconds that a card must have been there before a key decides

/**
 * @typedef {object} Approval
 * @property {string} id
 * @property {string} call
 * @property {string} state
 * @property {string} user
 * @property {string} [key]
 * @property {string} tool
 * @property {Record<string, unknown>} [arguments]
 * @property {string} hash
 * @property {string} rule
 * @property {string[]} approvers
 * @property {string} created
 * @property {string} expires
 * @property {string} [decidedBy]
 * @property {string} [decidedAt]
 * @property {string} [note]
 */

export default function Approvals() {
  const open = useLoad(`${API}/approvals?state=pending&limit=100`, { every: 20_000 });
  const all = useLoad(`${API}/approvals?limit=100`, { every: 20_000 });
  const reload = () => Promise.all([open.reload(), all.reload()]);
  /** @type {Approval[]} */
  const waiting = open.data ?? [];
  /** @type {Approval[]} */
  const decided = (all.data ?? []).filter((/** @type {Approval} */ each) => each.state !== "pending");
  const times = decided.filter((each) => each.decidedAt)
    .map((each) => new Date(each.decidedAt ?? 0).getTime() - new Date(each.created).getTime());
  const mean = times.length ? times.reduce((sum, each) => sum + each, 0) / times.length : null;
  const about = open.data && (mean === null ? t("approvals.about", { n: waiting.length }) : t("approvals.mean", { n: waiting.length, time: duration(mean) }));
  return html`<${Screen} title=${t("nav.approvals")} about=${about}>
    <div class="stack">
      <section class="stack tight" aria-label=${t("approvals.open")}>
        ${!open.data && html`<${Missing} of=${open} />`}
        ${open.data && waiting.length === 0 && html`<div class="box"><p class="empty"><strong>${t("approvals.none")}</strong>${t("approvals.none.why")}</p></div>`}
        ${waiting.map((each) => html`<${Asking} key=${each.id} of=${each} done=${reload} />`)}
      </section>
      ${decided.length > 0 && html`<section class="box" aria-labelledby="history-title">
        <div class="box-head"><h2 id="history-title">${t("approvals.history")}</h2></div>
        <div class="scroll-x" tabindex="0" role="region" aria-labelledby="history-title"><table>
          <thead><tr><th>${t("audit.ended")}</th><th>${t("audit.call")}</th><th>${t("approvals.asked")}</th><th>${t("approvals.by")}</th><th>${t("approvals.note")}</th></tr></thead>
          <tbody>${decided.map((each) => html`<tr>
            <td class="tight"><${Chip} tone=${each.state === "denied" ? "failed" : each.state === "expired" ? "quiet" : "ran"}
              icon=${each.state === "denied" ? "cross" : each.state === "expired" ? "clock" : "check"}>${t(/** @type {any} */ (`approval.${each.state}`))}<//></td>
            <td><${Address} address=${each.tool} /></td>
            <td class="muted">${t("approvals.asked.by", { user: each.user, time: ago(each.created) })}</td>
            <td>${each.decidedBy ?? "–"}</td>
            <td class="muted">${each.note && html`<${Foreign} text=${each.note} />`}</td>
          </tr>`)}</tbody>
        </table></div>
      </section>`}
    </div>
  <//>`;
}

/**
 * One call that waits: all of its arguments, why it is asked, and who may decide.
 * @param {{of: Approval, done: () => Promise<unknown>}} props
 */
export function Asking({ of, done }) {
  const [note, setNote] = useState("");
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const [opened, setOpened] = useState(/** @type {ReadonlySet<string>} */ (new Set()));
  const card = useRef(/** @type {HTMLElement | null} */ (null));
  const shown = useRef(Date.now());
  useEffect(() => {
    shown.current = Date.now();
  }, [of.hash]);
  const folded = Object.entries(of.arguments ?? {}).filter(([, value]) => typeof value === "string" && isFolded(value));
  const unread = folded.filter(([name]) => !opened.has(name)).map(([name]) => name);
  const isOwn = me.value !== null && me.value !== false && me.value.user === of.user;
  const mayDecide = may("admin:approve");
  const isSealed = of.arguments === undefined;

  /** @param {"approve" | "deny"} decision */
  async function decide(decision) {
    if (busy || (decision === "approve" && (unread.length || isSealed))) return;
    setBusy(true);
    setError(null);
    try {
      await post(`${API}/approvals/${of.id}/${decision}`, { hash: of.hash, ...(note && { note }) });
      await done();
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setError(problem);
      if (problem.status === 409) await done();
    } finally {
      setBusy(false);
    }
  }

  /** @param {KeyboardEvent} event */
  function pressed(event) {
    if (event.target !== card.current || event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!mayDecide || Date.now() - shown.current < SETTLED) return;
    if (event.key === "a" || event.key === "A") void decide("approve");
    else if (event.key === "d" || event.key === "D") void decide("deny");
    else return;
    event.preventDefault();
  }

  const end = t("approvals.expires", { time: ago(of.expires) });
  return html`<div class="asking" tabindex="0" role="group" ref=${card} onKeyDown=${pressed}
    aria-label=${t("approvals.group", { tool: of.tool, user: of.user })} data-approval=${of.id}>
    <${CallCard} call=${{ id: of.call, state: "asking", address: of.tool, summary: t("approvals.for", { user: of.user }), end }} open>
      ${isSealed
        ? html`<div class="note tone-failed"><${Icon} name="lock" /><div>${t("approvals.sealed")}</div></div>`
        : Object.keys(of.arguments ?? {}).length === 0
          ? html`<p class="muted">${t("approvals.no.arguments")}</p>`
          : html`<${Arguments} value=${of.arguments} opened=${(/** @type {string} */ name) => setOpened(new Set([...opened, name]))} />`}
      <div class="note"><${Icon} name="lock" />
        <div><strong>${t("approvals.why")}</strong> ${t("approvals.rule", { rule: of.rule, who: of.approvers.join(", ") })}</div></div>
      ${isOwn && !of.approvers.includes("caller") && html`<div class="note tone-asking"><${Icon} name="warning" /><div>${t("approvals.own")}</div></div>`}
      ${error && html`<${Problem} error=${error} />`}
      ${mayDecide && html`<div class="field"><label for=${`note-${of.id}`}>${t("approvals.note")}</label>
        <input id=${`note-${of.id}`} class="input" maxlength="500" value=${note}
          onInput=${(/** @type {Event} */ event) => setNote(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></div>`}
      <div class="decide">
        ${mayDecide
          ? html`<button class="button main deciding" disabled=${busy || unread.length > 0 || isSealed} onClick=${() => decide("approve")}>
                <${Icon} name="check" />${t("approvals.approve")} <kbd>A</kbd></button>
              <button class="button danger deciding" disabled=${busy} onClick=${() => decide("deny")}>${t("approvals.deny")} <kbd>D</kbd></button>
              ${unread.length > 0 && html`<span class="muted small">${t("approvals.unread", { names: unread.join(", ") })}</span>`}`
          : html`<span class="muted small">${t("approvals.may.not")}</span>`}
        <span class="hash mono">${common("card.hash", { hash: of.hash.slice(0, 8) })}</span>
      </div>
    <//>
  </div>`;
}
