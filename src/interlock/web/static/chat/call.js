// The card of a call in the chat.

import { Arguments, CallCard } from "../shared/card.js";
import { ago } from "../shared/format.js";
import { Icon } from "../shared/icons.js";
import { Foreign } from "../shared/marks.js";
import { page } from "../shared/page.js";
import { Tabs } from "../shared/tabs.js";
import { html, useEffect, useState } from "../shared/view.js";
import { Approval } from "./approval.js";
import { Result } from "./result.js";
import { stopCall } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Card} Card */

/** @param {{of: import("../vendor/signals.js").Signal<Card>}} props */
export function Call({ of }) {
  const card = of.value;
  if (card.state === "asking" && card.approval) return html`<${Approval} card=${card} approval=${card.approval} />`;
  if (card.state === "running") return html`<${Running} card=${card} />`;
  const head = {
    id: card.id ?? card.key,
    state: card.state,
    address: card.tool,
    summary: summaryOf(card),
    ms: card.seconds === null ? null : card.seconds * 1000,
  };
  return html`<div id=${`call-${card.id}`}>
    <${CallCard} key=${card.state} call=${head} open=${card.state === "failed"}>
      <${CallBody} card=${card} />
    <//>
  </div>`;
}

/** @param {{card: Card}} props */
function Running({ card }) {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, []);
  const seconds = Math.max(0, Math.floor((now - card.started) / 1000));
  const clock = `${String(Math.floor(seconds / 60)).padStart(2, "0")}:${String(seconds % 60).padStart(2, "0")}`;
  const { progress } = card;
  const stop = html`<button type="button" class="button plain" onClick=${() => stopCall(card.id ?? "")}>
    <${Icon} name="square" />${t("stop")}
  </button>`;
  const share = progress?.total ? Math.min(1, progress.progress / progress.total) : null;
  const head = { id: card.id ?? card.key, state: "running", address: card.tool, summary: summaryOf(card), end: clock };
  return html`<div class="running-card" id=${`call-${card.id}`}>
    <${CallCard} call=${head} />
    ${stop}
    ${progress &&
    html`<div class="progress">
      <div class="row">
        <span class="grow"><${Foreign} text=${progress.message || t("progress")} /></span>
        ${share !== null && html`<span>${Math.round(share * 100)} %</span>`}
      </div>
      ${share === null
        ? html`<progress aria-label=${t("progress")}></progress>`
        : html`<progress aria-label=${t("progress")} value=${share} max="1"></progress>`}
    </div>`}
  </div>`;
}

/** @param {Card} card */
export function summaryOf(card) {
  if (card.state !== "ran" && card.state !== "running") return reasonOf(card.state, card.reason);
  const given = card.arguments;
  if (given === null || typeof given !== "object") return "";
  const values = Object.values(given).filter((each) => ["string", "number", "boolean"].includes(typeof each));
  return values.map((each) => String(each).replace(/\s+/g, " ")).join(" · ").slice(0, 160);
}

const REASONS = [
  "approval_denied", "approval_expired", "approval_pending", "approval_required", "denied_by_rule",
  "no_rule", "scope", "read_only", "not_in_view", "rate_limited", "overloaded",
  "tool_rate_limited", "quota_exceeded", "queue_timeout", "tool_quarantined", "cancelled",
  "unfinished",
]; // prettier-ignore

/** @param {string} state @param {string} reason */
export function reasonOf(state, reason) {
  if (REASONS.includes(reason)) return t(/** @type {any} */ (`reason.${reason}`));
  if (state === "failed") return t("reason.failed");
  if (state === "stopped") return t("reason.cancelled");
  return reason;
}

/** What an open card shows. @param {{card: Card}} props */
export function CallBody({ card }) {
  const [chosen, choose] = useState("result");
  const tabs = [
    { id: "result", title: t("result") },
    { id: "arguments", title: t("arguments") },
  ];
  const isOver = card.state === "ran" || card.state === "failed";
  return html`
    ${card.state === "failed" &&
    html`<div class="note tone-failed">
      <${Icon} name="warning" />
      <div class="grow">
        <strong>${t(card.reason === "unfinished" ? "failed.unfinished" : "failed.title")}</strong>
        ${card.reason !== "unfinished" && html`${" "}<span>${t("failed.told")}</span>`}
      </div>
    </div>`}
    ${!isOver && html`<p class="small"><${Foreign} text=${card.result || reasonOf(card.state, card.reason)} /></p>`}
    ${isOver
      ? html`<${Tabs} label=${card.tool} tabs=${tabs} chosen=${chosen} choose=${choose}>
          <div class="tab-body">
            ${chosen === "result" ? html`<${Result} card=${card} />` : html`<${Arguments} value=${card.arguments} />`}
          </div>
        <//>`
      : html`<${Arguments} value=${card.arguments} />`}
    <p class="small muted card-foot">
      ${card.decided && html`<span>${decided(card.decided)}</span>`}
      ${card.id && html`<a class="mono" href=${`${page.base}/calls/${card.id}`}>${t("call.address", { id: card.id.slice(0, 10) })}</a>`}
    </p>
  `;
}

/** @param {{state: string, by: string, at: string}} decision */
function decided({ state, by, at }) {
  const known = /** @type {any} */ (`decided.${state}`);
  return t(known, { by: by.replace(/^user:/, ""), when: ago(at) });
}
