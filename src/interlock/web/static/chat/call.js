// The card of a call in the chat.

import { CallCard } from "../shared/card.js";
import { isBranch } from "../shared/exact.js";
import { ago } from "../shared/format.js";
import { Icon } from "../shared/icons.js";
import { Arguments, JsonView } from "../shared/json.js";
import { Missing, useLoad } from "../shared/load.js";
import { Foreign, marked } from "../shared/marks.js";
import { page } from "../shared/page.js";
import { Tabs } from "../shared/tabs.js";
import { html, useEffect, useState } from "../shared/view.js";
import { Approval } from "./approval.js";
import { Result } from "./result.js";
import { current, say, stopCall, tools } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Card} Card */

const PENDING = "approval_pending"; // others decide about the call

/** @param {{of: import("../vendor/signals.js").Signal<Card>}} props */
export function Call({ of }) {
  const card = of.value;
  if (card.state === "asking" && card.approval) return html`<${Approval} card=${card} approval=${card.approval} />`;
  if (card.state === "running") return html`<${Running} card=${card} />`;
  const hasRemedies = card.state === "failed" || card.reason === PENDING;
  const head = {
    id: card.id ?? card.key,
    state: card.state,
    address: card.tool,
    summary: summaryOf(card),
    ms: card.seconds === null ? null : card.seconds * 1000,
  };
  return html`<div id=${`call-${card.id}`}>
    <${CallCard} key=${card.state} call=${head} open=${hasRemedies || (hasApp(card) && card.started > 0)}>
      <${CallBody} card=${card}>${hasRemedies && html`<${Remedies} card=${card} />`}<//>
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
  if (card.state === "failed" && card.result) return card.result.trim().split("\n", 1)[0]?.slice(0, 160) ?? "";
  if (card.state !== "ran" && card.state !== "running") return reasonOf(card.state, card.reason);
  const given = card.arguments;
  if (!isBranch(given)) return "";
  const values = Object.values(given).flat().slice(0, 50).filter((each) => each !== null && !isBranch(each));
  return values.map((each) => String(each).slice(0, 500).replace(/\s+/g, " ")).join(" · ").slice(0, 160);
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

/**
 * What can be done about a call that failed, or that others must approve.
 * @param {{card: Card}} props
 */
function Remedies({ card }) {
  const [isOpen, setOpen] = useState(false);
  const known = tools.value.find((each) => each.address === card.tool);
  const isFree = current.value.turn.value === null;
  const isPending = card.reason === PENDING; // it has not run yet, so running it repeats nothing
  return html`${isPending &&
    html`<div class="note tone-asking"><${Icon} name="pause" /><div>${t("pending")}</div></div>`}
    <div class="row">
      ${(known?.repeatable || isPending) &&
      isFree &&
      html`<button type="button" class="button" onClick=${() => say(t("run.again.please", { tool: card.tool }), [])}>
        <${Icon} name="turning" />${t("run.again")}
      </button>`}
      ${page.local &&
      !isPending &&
      html`<button type="button" class="button plain" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>
        ${t("server.log")}
      </button>`}
    </div>
    ${isOpen && html`<${ServerLog} server=${card.tool.split(":")[0] ?? ""} />`}`;
}

/** The end of what a server wrote to stderr. @param {{server: string}} props */
export function ServerLog({ server }) {
  const loaded = useLoad(`/api/servers/${encodeURIComponent(server)}/stderr`);
  if (!loaded.data) return html`<${Missing} of=${loaded} />`;
  if (!loaded.data.text) return html`<p class="small muted">${t("server.log.none", { server })}</p>`;
  return html`<pre class="result-text" tabindex="0" aria-label=${t("server.log")} dir="ltr">${marked(loaded.data.text)}</pre>`;
}

/** All that is kept of a call. @param {{card: Card}} props */
function Kept({ card }) {
  const loaded = useLoad(`/api/calls/${encodeURIComponent(card.id ?? "")}`);
  return loaded.data ? html`<${JsonView} value=${loaded.data} />` : html`<${Missing} of=${loaded} />`;
}

/** @param {Card} card */
function hasApp(card) {
  const isDone = card.state === "ran" && card.id !== null && card.hasResult;
  return isDone && Boolean(tools.value.find((each) => each.address === card.tool)?.app);
}

/** The app of a call, whose code is loaded when the first one is shown. @param {{card: Card}} props */
function LazyApp({ card }) {
  const [module, setModule] = useState(/** @type {typeof import("./app.js") | null} */ (null));
  useEffect(() => {
    void import("./app.js").then(setModule);
  }, []);
  return module && html`<${module.App} card=${card} runs=${card.started > 0} />`;
}

/** What an open card shows. @param {{card: Card, children?: any}} props */
export function CallBody({ card, children }) {
  const [wanted, choose] = useState("");
  const isApp = hasApp(card); // a stored call may be opened before the tools are known
  const chosen = wanted || (isApp ? "app" : "result");
  const tabs = [
    ...(isApp ? [{ id: "app", title: t("app") }] : []),
    { id: "result", title: t("result") },
    { id: "arguments", title: t("arguments") },
    ...(card.hasResult && card.id ? [{ id: "record", title: t("record") }] : []),
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
    ${children}
    ${!isOver && html`<p class="small"><${Foreign} text=${card.result || reasonOf(card.state, card.reason)} /></p>`}
    ${isOver
      ? html`<${Tabs} label=${card.tool} tabs=${tabs} chosen=${chosen} choose=${choose}>
          <div class="tab-body">
            ${chosen === "app" && html`<${LazyApp} card=${card} />`}
            ${chosen === "result" && html`<${Result} card=${card} />`}
            ${chosen === "arguments" && html`<${Arguments} value=${card.arguments} />`}
            ${chosen === "record" && html`<${Kept} card=${card} />`}
          </div>
        <//>`
      : html`<${Arguments} value=${card.arguments} />`}
    <p class="small muted card-foot">
      ${card.decided && html`<span>${decided(card.decided)}</span>`}
      ${card.id && html`<a class="mono" href=${`/calls/${card.id}`}>${t("call.address", { id: card.id.slice(-8) })}</a>`}
    </p>
  `;
}

/** @param {{state: string, by: string, at: string}} decision */
function decided({ state, by, at }) {
  const known = /** @type {any} */ (`decided.${state}`);
  return t(known, { by: by.replace(/^user:/, ""), when: ago(at) });
}
