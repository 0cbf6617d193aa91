// A call that waits for an approval: what is needed to decide, and the decision.

import { html, useEffect, useRef, useState } from "./view.js";
import { ApiError, post } from "./api.js";
import { Arguments, CallCard } from "./card.js";
import { ago } from "./format.js";
import { Icon } from "./icons.js";
import { isFolded } from "./json.js";
import { Problem } from "./load.js";
import { page } from "./page.js";
import { me } from "./session.js";
import { t } from "./text.js";

const SETTLED = 600; // milliseconds that a card must have been there before a key decides

/**
 * @typedef {object} Asked A call that waits, as the person at the page is shown it.
 * @property {string} id
 * @property {string} call
 * @property {string} [user] Whose call it is; none where that is this person.
 * @property {string} tool
 * @property {Record<string, unknown>} [arguments]
 * @property {string} hash
 * @property {string} rule
 * @property {string[]} approvers
 * @property {string} expires
 *
 * @typedef {object} Kept
 * @property {string} state
 * @property {string} user
 * @property {string} [key]
 * @property {string} created
 * @property {string} [decidedBy]
 * @property {string} [decidedAt]
 * @property {string} [note]
 *
 * @typedef {Asked & Kept} Approval
 */

/**
 * One call that waits: all of its arguments, why it is asked, and who may decide.
 * @param {{of: Asked, path: string, mayDecide: boolean, done: () => Promise<unknown>, always?: (() => Promise<unknown>) | null}} props
 *   `path` is where decisions are sent, followed by "/approve" or "/deny".
 *   `always` lets such calls run from now on.
 */
export function Asking({ of, path, mayDecide, done, always = null }) {
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
  const isSealed = of.arguments === undefined;

  /** @param {"approve" | "deny"} decision */
  async function decide(decision) {
    if (busy || (decision === "approve" && (unread.length || isSealed))) return;
    setBusy(true);
    setError(null);
    try {
      await post(`${path}/${decision}`, { hash: of.hash, ...(note && { note }) });
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

  const end = t("asking.expires", { time: ago(of.expires) });
  return html`<div class="asking" tabindex="0" role="group" ref=${card} onKeyDown=${pressed}
    aria-label=${of.user ? t("asking.group", { tool: of.tool, user: of.user }) : t("asking.wait", { tool: of.tool })} data-approval=${of.id}>
    <${CallCard} call=${{ id: of.call, state: "asking", address: of.tool, summary: of.user ? t("asking.for", { user: of.user }) : "", end }} open>
      ${isSealed
        ? html`<div class="note tone-failed"><${Icon} name="lock" /><div>${t("asking.sealed")}</div></div>`
        : Object.keys(of.arguments ?? {}).length === 0
          ? html`<p class="muted">${t("asking.no.arguments")}</p>`
          : html`<${Arguments} value=${of.arguments} opened=${(/** @type {string} */ name) => setOpened(new Set([...opened, name]))} />`}
      <div class="note"><${Icon} name="lock" />
        <div><strong>${t("asking.why")}</strong> ${of.rule && !page.builtIn ? t("asking.rule", { rule: of.rule, who: of.approvers.join(", ") }) : t("asking.risk")}</div></div>
      ${isOwn && !of.approvers.includes("caller") && html`<div class="note tone-asking"><${Icon} name="warning" /><div>${t("asking.own")}</div></div>`}
      ${error && html`<${Problem} error=${error} />`}
      ${mayDecide && of.user && html`<div class="field"><label for=${`note-${of.id}`}>${t("asking.note")}</label>
        <input id=${`note-${of.id}`} class="input" maxlength="500" value=${note}
          onInput=${(/** @type {Event} */ event) => setNote(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></div>`}
      <div class="decide">
        ${mayDecide
          ? html`<button class="button main deciding" disabled=${busy || unread.length > 0 || isSealed} onClick=${() => decide("approve")}>
                <${Icon} name="check" />${t("asking.approve")} <kbd>A</kbd></button>
              <button class="button danger deciding" disabled=${busy} onClick=${() => decide("deny")}>${t("asking.deny")} <kbd>D</kbd></button>
              ${always && html`<button class="button plain deciding" disabled=${busy || unread.length > 0} onClick=${() => always().then(() => decide("approve"))}>${t("asking.always")}</button>`}
              ${unread.length > 0 && html`<span class="muted small">${t("asking.unread", { names: unread.join(", ") })}</span>`}`
          : html`<span class="muted small">${t("asking.may.not")}</span>`}
        <span class="hash mono">${t("card.hash", { hash: of.hash.slice(0, 8) })}</span>
      </div>
    <//>
  </div>`;
}
