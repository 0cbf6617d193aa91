// A call that waits for a decision: all of it is shown, and exactly that is decided about.

import { Arguments } from "../shared/card.js";
import { post } from "../shared/api.js";
import { Icon } from "../shared/icons.js";
import { isFolded } from "../shared/json.js";
import { Address } from "../shared/marks.js";
import { OutcomeChip } from "../shared/outcomes.js";
import { html, useEffect, useId, useRef, useState } from "../shared/view.js";
import { attempt, chooseTool, current, isLocal, reply } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Card} Card */
/** @typedef {NonNullable<Card["approval"]>} Asked */

const PAUSE = 600; // milliseconds after the card appeared in which no key decides

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

/** @param {any} value */
function foldedNames(value) {
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).filter(([, each]) => typeof each === "string" && isFolded(each)).map(([name]) => name);
}

/** @param {{card: Card, approval: Asked}} props */
export function Approval({ card, approval }) {
  const [seen, setSeen] = useState(/** @type {string[]} */ ([]));
  const [isChanging, setChanging] = useState(false);
  const element = useRef(/** @type {HTMLElement | null} */ (null));
  const expires = useCountdown(approval.expires);
  const hint = useId();
  // What writes or sends out is decided only after all of it was seen.
  const unread = approval.risk === "read" ? 0 : foldedNames(card.arguments).filter((each) => !seen.includes(each)).length;
  const isMine = approval.approvers.includes("caller");

  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || isChanging || !isMine) return;
    if (performance.now() - approval.shown < PAUSE) return;
    if (event.key.toLowerCase() === "a" && unread === 0) decide(approval, "allow");
    else if (event.key.toLowerCase() === "d") decide(approval, "deny");
    else return;
    event.preventDefault();
  }
  return html`<article
    class="call"
    id=${`call-${card.id}`}
    data-call=${card.id}
    data-state="asking"
    data-hash=${approval.hash}
    aria-label=${card.tool}
    tabindex="0"
    ref=${element}
    onKeyDown=${key}
  >
    <div class="call-head">
      <${OutcomeChip} state="asking" /><${Address} address=${card.tool} />
      <span class="grow"></span><span class="took waits-word">${expires}</span>
    </div>
    <div class="call-body">
      <${Arguments} value=${card.arguments} opened=${(/** @type {string} */ name) => setSeen([...seen, name])} />
      <${Why} approval=${approval} />
      <${Untrusted} card=${card} />
      ${isChanging
        ? html`<${Change} card=${card} approval=${approval} close=${() => setChanging(false)} />`
        : isMine
          ? html`<div class="decide">
              <button
                type="button"
                class="button main deciding"
                disabled=${unread > 0}
                aria-describedby=${unread > 0 ? hint : null}
                onClick=${() => decide(approval, "allow")}
              >
                <${Icon} name="check" />${t("approve")} <kbd aria-hidden="true">A</kbd>
              </button>
              <button type="button" class="button danger deciding" onClick=${() => decide(approval, "deny")}>
                ${t("deny")} <kbd aria-hidden="true">D</kbd>
              </button>
              <button type="button" class="button plain deciding" onClick=${() => setChanging(true)}>${t("change")}</button>
              ${isLocal.value &&
              html`<button type="button" class="button plain deciding" disabled=${unread > 0} onClick=${() => always(card, approval)}>${t("always")}</button>`}
              <span class="hash mono">${t("hash", { hash: approval.hash.slice(0, 8) })}</span>
            </div>`
          : html`<p class="small">${t("approvers", { who: approval.approvers.join(", ") })}</p>`}
      ${unread > 0 && html`<p class="small" id=${hint}>${t("unread", { n: unread })}</p>`}
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

/** @param {{card: Card, approval: Asked, close: () => void}} props */
function Change({ card, approval, close }) {
  const [text, setText] = useState(JSON.stringify(card.arguments, null, 2));
  const [problems, setProblems] = useState(/** @type {string[]} */ ([]));
  const id = useId();
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    let given;
    try {
      given = JSON.parse(text);
    } catch (error) {
      setProblems([String(error)]);
      return;
    }
    let found = ["?"];
    const isChecked = await attempt(async () => {
      found = (await post(`/api/tools/${encodeURIComponent(card.tool)}/check`, { arguments: given })).problems;
      setProblems(found);
    });
    if (!isChecked || found.length) return;
    reply({ type: "change", approval_id: approval.id, hash: approval.hash, arguments: given });
    close();
  }
  return html`<form class="stack tight" onSubmit=${submit}>
    <div class="field">
      <label for=${id}>${t("change.label")}</label>
      <textarea
        id=${id}
        class="input mono"
        rows=${Math.min(16, text.split("\n").length + 1)}
        spellcheck="false"
        value=${text}
        aria-invalid=${String(problems.length > 0)}
        onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)}
      ></textarea>
      <span class="hint">${t("change.hint")}</span>
      ${problems.map((each) => html`<span class="problem" role="alert">${each}</span>`)}
    </div>
    <div class="row">
      <button class="button main deciding">${t("change.do")}</button>
      <button class="button deciding" type="button" onClick=${close}>${t("cancel")}</button>
    </div>
  </form>`;
}

/** Several calls of one tool. @param {{cards: import("../vendor/signals.js").Signal<Card>[]}} props */
export function Batch({ cards }) {
  const all = cards.map((each) => each.value).filter((each) => each.approval);
  const [seen, setSeen] = useState(/** @type {string[]} */ ([]));
  const first = all[0];
  const expires = useCountdown(first?.approval?.expires ?? "");
  if (!first?.approval) return null;
  const { approval } = first;
  const isMine = approval.approvers.includes("caller");
  const folds = all.flatMap((each) => foldedNames(each.arguments).map((name) => `${each.key} ${name}`));
  const unread = approval.risk === "read" ? 0 : folds.filter((each) => !seen.includes(each)).length;
  /** @param {"allow" | "deny"} decision */
  const each = (decision) => all.forEach((card) => card.approval && decide(card.approval, decision));
  return html`<article class="call" data-state="asking" data-call=${first.id} aria-label=${first.tool}>
    <div class="call-head">
      <${OutcomeChip} state="asking" /><${Address} address=${first.tool} />
      <span class="summary">${t("batch.calls", { n: all.length })}</span><span class="took waits-word">${expires}</span>
    </div>
    <div class="call-body">
      <ol class="batch">
        ${all.map(
          (card) => html`<li key=${card.key} data-call=${card.id} data-hash=${card.approval?.hash}>
            <${Arguments} value=${card.arguments} opened=${(/** @type {string} */ name) => setSeen([...seen, `${card.key} ${name}`])} />
            ${isMine &&
            html`<div class="row">
              <button type="button" class="link" disabled=${unread > 0} onClick=${() => card.approval && decide(card.approval, "allow")}>${t("batch.one")}</button>
              <button type="button" class="link" onClick=${() => card.approval && decide(card.approval, "deny")}>${t("batch.deny.one")}</button>
            </div>`}
          </li>`,
        )}
      </ol>
      <${Why} approval=${approval} />
      <${Untrusted} card=${first} />
      ${isMine
        ? html`<div class="decide">
            <button type="button" class="button main deciding" disabled=${unread > 0} onClick=${() => each("allow")}>
              <${Icon} name="check" />${t("batch.approve", { n: all.length })}
            </button>
            <button type="button" class="button danger deciding" onClick=${() => each("deny")}>${t("batch.deny")}</button>
          </div>`
        : html`<p class="small">${t("approvers", { who: approval.approvers.join(", ") })}</p>`}
      ${unread > 0 && html`<p class="small">${t("unread", { n: unread })}</p>`}
    </div>
  </article>`;
}
