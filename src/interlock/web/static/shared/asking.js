// A call that waits for an approval: what is needed to decide, and the decision.

import { html, useState } from "./view.js";
import { ApiError, post } from "./api.js";
import { CallCard } from "./card.js";
import { ago } from "./format.js";
import { Icon } from "./icons.js";
import { Arguments, SeenFolds, Unread, useReview } from "./json.js";
import { Problem } from "./load.js";
import { page } from "./page.js";
import { me } from "./session.js";
import { t } from "./text.js";

const SETTLED = 600; // milliseconds that a card must have been there before a key decides

/**
 * Return what makes the keys A and D decide, while their card or a button in it has the focus.
 * @param {() => number} since When the card appeared, as `performance.now`.
 * @param {() => void} approve
 * @param {() => void} deny
 * @returns {(event: KeyboardEvent) => void}
 */
export function decidingKeys(since, approve, deny) {
  return (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey) return;
    if (performance.now() - since() < SETTLED) return;
    if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
    const key = event.key.toLowerCase();
    if (key !== "a" && key !== "d") return;
    event.preventDefault();
    (key === "a" ? approve : deny)();
  };
}

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
export function Asking(props) {
  return html`<${Deciding} key=${props.of.hash} ...${props} />`; // folds are opened for these arguments
}

/** @param {Parameters<typeof Asking>[0]} props */
function Deciding({ of, path, mayDecide, done, always = null }) {
  const [note, setNote] = useState("");
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [busy, setBusy] = useState(false);
  const review = useReview({ "": of.arguments });
  const [shown] = useState(() => performance.now());
  const isOwn = me.value !== null && me.value !== false && me.value.user === of.user;
  const isSealed = of.arguments === undefined;
  const may = review.unread === 0 && !isSealed;

  /** @param {"approve" | "deny"} decision */
  async function decide(decision) {
    if (busy || !mayDecide || (decision === "approve" && !may)) return;
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

  const pressed = decidingKeys(() => shown, () => void decide("approve"), () => void decide("deny"));
  const end = t("asking.expires", { time: ago(of.expires) });
  return html`<div class="asking" tabindex="0" role="group" onKeyDown=${pressed}
    aria-label=${of.user ? t("asking.group", { tool: of.tool, user: of.user }) : t("asking.wait", { tool: of.tool })} data-approval=${of.id}>
    <${CallCard} call=${{ id: of.call, state: "asking", address: of.tool, summary: of.user ? t("asking.for", { user: of.user }) : "", end }} open>
      ${isSealed
        ? html`<div class="note tone-failed"><${Icon} name="lock" /><div>${t("asking.sealed")}</div></div>`
        : html`<${SeenFolds.Provider} value=${review.seen}><${Arguments} value=${of.arguments} /><//>`}
      <div class="note"><${Icon} name="lock" />
        <div><strong>${t("asking.why")}</strong> ${of.rule && !page.builtIn ? t("asking.rule", { rule: of.rule, who: of.approvers.join(", ") }) : t("asking.risk")}</div></div>
      ${isOwn && !of.approvers.includes("caller") && html`<div class="note tone-asking"><${Icon} name="warning" /><div>${t("asking.own")}</div></div>`}
      ${error && html`<${Problem} error=${error} />`}
      ${mayDecide && of.user && html`<div class="field"><label for=${`note-${of.id}`}>${t("asking.note")}</label>
        <input id=${`note-${of.id}`} class="input" maxlength="500" value=${note}
          onInput=${(/** @type {Event} */ event) => setNote(/** @type {HTMLInputElement} */ (event.currentTarget).value)} /></div>`}
      <div class="decide">
        ${mayDecide
          ? html`<button class="button main deciding" disabled=${busy || !may} onClick=${() => decide("approve")}>
                <${Icon} name="check" />${t("asking.approve")} <kbd>A</kbd></button>
              <button class="button danger deciding" disabled=${busy} onClick=${() => decide("deny")}>${t("asking.deny")} <kbd>D</kbd></button>
              ${always && html`<button class="button plain deciding" disabled=${busy || !may} onClick=${() => always().then(() => decide("approve"))}>${t("asking.always")}</button>`}
              <${Unread} review=${review} />`
          : html`<span class="muted small">${t("asking.may.not")}</span>`}
        <span class="hash mono">${t("card.hash", { hash: of.hash.slice(0, 8) })}</span>
      </div>
    <//>
  </div>`;
}
