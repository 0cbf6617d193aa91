// A call that waits for a decision: all of it is shown, and exactly that is decided about.

import { decidingKeys } from "../shared/asking.js";
import { Icon } from "../shared/icons.js";
import { Arguments, SeenFolds, Unread, useReview } from "../shared/json.js";
import { Address } from "../shared/marks.js";
import { OutcomeChip } from "../shared/outcomes.js";
import { html, useEffect, useId, useState } from "../shared/view.js";
import { Change } from "./change.js";
import { chooseTool, current, isLocal, reply } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Card} Card */
/** @typedef {NonNullable<Card["approval"]>} Asked */

/** @param {Asked} approval @param {"allow" | "deny"} decision */
function decide(approval, decision) {
  reply({ type: "approve", approval_id: approval.id, hash: approval.hash, decision });
}

/** @param {string} expires */
function useCountdown(expires) {
  const [now, setNow] = useState(Date.now());
  const left = Math.max(0, Math.round((new Date(expires).getTime() - now) / 1000));
  const isNear = left < 3600;
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), isNear ? 1000 : 60_000);
    return () => clearInterval(timer);
  }, [isNear]);
  if (left >= 3600) return t("expires.hours", { n: Math.round(left / 3600) });
  return t("expires", { time: `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` });
}

/** @param {{card: Card, approval: Asked}} props */
export function Approval(props) {
  return html`<${One} key=${props.approval.hash} ...${props} />`; // folds are opened for these arguments
}

/** @param {{card: Card, approval: Asked}} props */
function One({ card, approval }) {
  const review = useReview({ "": card.arguments });
  const [isChanging, setChanging] = useState(false);
  const expires = useCountdown(approval.expires);
  const hint = useId();
  const isMine = approval.approvers.includes("caller");
  const isUnread = review.unread > 0;
  const allow = () => void (isMine && !isChanging && !isUnread && decide(approval, "allow"));
  const deny = () => void (isMine && !isChanging && decide(approval, "deny"));
  return html`<article
    class="call"
    id=${`call-${card.id}`}
    data-call=${card.id}
    data-state="asking"
    data-hash=${approval.hash}
    aria-label=${card.tool}
    tabindex="0"
    onKeyDown=${decidingKeys(() => approval.shown, allow, deny)}
  >
    <div class="call-head">
      <${OutcomeChip} state="asking" /><${Address} address=${card.tool} />
      <span class="grow"></span><span class="took waits-word">${expires}</span>
    </div>
    <div class="call-body">
      <${SeenFolds.Provider} value=${review.seen}>
        ${!isChanging && html`<${Arguments} value=${card.arguments} />`}
        <${Why} approval=${approval} />
        <${Untrusted} card=${card} />
        ${isChanging && html`<${Change} card=${card} approval=${approval} close=${() => setChanging(false)} />`}
      <//>
      ${!isMine
        ? html`<p class="small">${t("approvers", { who: approval.approvers.join(", ") })}</p>`
        : !isChanging &&
          html`<div class="decide">
              <button type="button" class="button main deciding" disabled=${isUnread} aria-describedby=${isUnread ? hint : null} onClick=${allow}>
                <${Icon} name="check" />${t("approve")} <kbd aria-hidden="true">A</kbd>
              </button>
              <button type="button" class="button danger deciding" onClick=${deny}>${t("deny")} <kbd aria-hidden="true">D</kbd></button>
              <button type="button" class="button plain deciding" onClick=${() => setChanging(true)}>${t("change")}</button>
              ${isLocal.value &&
              html`<button type="button" class="button plain deciding" disabled=${isUnread} onClick=${() => always(card, approval)}>${t("always")}</button>`}
              <span class="hash mono">${t("hash", { hash: approval.hash.slice(0, 8) })}</span>
              <${Unread} review=${review} id=${hint} />
            </div>`}
    </div>
  </article>`;
}

/** @param {Card} card @param {Asked} approval */
async function always(card, approval) {
  if (await chooseTool(card.tool, "on")) decide(approval, "allow");
}

/** @param {{approval: Asked}} props */
function Why({ approval }) {
  return html`<div class="note">
    <${Icon} name="lock" />
    <div>
      <strong>${t("why")}</strong> ${approval.rule && html`${t("why.rule")} <code>${approval.rule}</code>. `}
      ${t(approval.risk === "read" ? "why.read" : "why.write")}
    </div>
  </div>`;
}

/** Which tools have brought text of others into this conversation. @param {{card: Card}} props */
function Untrusted({ card }) {
  const read = new Set(
    [...current.value.cards.values()]
      .filter((each) => each.value.key !== card.key && each.value.state === "ran")
      .map((each) => each.value.tool),
  );
  if (read.size === 0) return null;
  return html`<div class="note tone-asking">
    <${Icon} name="warning" />
    <div>
      ${t("untrusted")}
      ${[...read].slice(0, 5).map((each, at) => html`${at > 0 ? ", " : " "}<${Address} address=${each} />`)}. ${t("untrusted.check")}
    </div>
  </div>`;
}

/** Several calls of one tool. @param {{cards: import("../vendor/signals.js").Signal<Card>[]}} props */
export function Batch({ cards }) {
  const all = cards.map((each) => each.value).filter((each) => each.approval);
  const hashes = all.map((each) => each.approval?.hash ?? "");
  const review = useReview(Object.fromEntries(all.map((each, at) => [hashes[at], each.arguments])));
  const first = all[0];
  const expires = useCountdown(first?.approval?.expires ?? "");
  const hint = useId();
  if (!first?.approval) return null;
  const { approval } = first;
  const isMine = approval.approvers.includes("caller");
  const isUnread = review.unread > 0;
  /** @param {"allow" | "deny"} decision */
  const each = (decision) => all.forEach((card) => card.approval && decide(card.approval, decision));
  const allow = () => void (isMine && !isUnread && each("allow"));
  const deny = () => void (isMine && each("deny"));
  const since = () => Math.max(...all.map((card) => card.approval?.shown ?? 0));
  return html`<article
    class="call"
    data-state="asking"
    data-call=${first.id}
    aria-label=${first.tool}
    tabindex="0"
    onKeyDown=${decidingKeys(since, allow, deny)}
  >
    <div class="call-head">
      <${OutcomeChip} state="asking" /><${Address} address=${first.tool} />
      <span class="summary">${t("batch.calls", { n: all.length })}</span><span class="took waits-word">${expires}</span>
    </div>
    <div class="call-body">
      <ol class="batch">
        <${SeenFolds.Provider} value=${review.seen}>
          ${all.map(
            (card, at) => html`<li key=${card.key} data-call=${card.id} data-hash=${hashes[at]}>
              <${Arguments} key=${hashes[at]} value=${card.arguments} of=${hashes[at]} />
              ${isMine &&
              html`<div class="row">
                <button type="button" class="link" disabled=${isUnread} onClick=${() => card.approval && decide(card.approval, "allow")}>${t("batch.one")}</button>
                <button type="button" class="link" onClick=${() => card.approval && decide(card.approval, "deny")}>${t("batch.deny.one")}</button>
              </div>`}
            </li>`,
          )}
        <//>
      </ol>
      <${Why} approval=${approval} />
      <${Untrusted} card=${first} />
      ${isMine
        ? html`<div class="decide">
            <button type="button" class="button main deciding" disabled=${isUnread} aria-describedby=${isUnread ? hint : null} onClick=${allow}>
              <${Icon} name="check" />${t("batch.approve", { n: all.length })} <kbd aria-hidden="true">A</kbd>
            </button>
            <button type="button" class="button danger deciding" onClick=${deny}>${t("batch.deny")} <kbd aria-hidden="true">D</kbd></button>
            <${Unread} review=${review} id=${hint} />
          </div>`
        : html`<p class="small">${t("approvers", { who: approval.approvers.join(", ") })}</p>`}
    </div>
  </article>`;
}
