// One call at an address of its own.

import { html } from "../../shared/view.js";
import { Asking } from "../../shared/asking.js";
import { CallCard } from "../../shared/card.js";
import { ago } from "../../shared/format.js";
import { Arguments, JsonView } from "../../shared/json.js";
import { Missing, useLoad } from "../../shared/load.js";
import { may } from "../../shared/session.js";
import { TraceLink } from "../../shared/trace.js";
import { Link, words } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

/** @param {{id: string}} props */
export default function Call({ id }) {
  const path = `/api/calls/${encodeURIComponent(id)}`;
  const loaded = useLoad(path, { every: 5_000 });
  const call = loaded.data;
  return html`<${Screen} title=${t("call")} about=${id}>
    <div class="stack">
      ${call ? html`<${Shown} call=${call} path=${path} done=${loaded.reload} />` : html`<${Missing} of=${loaded} />`}
      ${call && may("admin:read") && html`<p><${Link} to=${`/gateway/audit?call=${encodeURIComponent(id)}`}>${t("call.records")}<//> <${TraceLink} of=${call.traceparent} /></p>`}
    </div>
  <//>`;
}

/** @param {{call: any, path: string, done: () => Promise<unknown>}} props */
function Shown({ call, path, done }) {
  const { asked } = call;
  if (asked?.state === "pending") {
    return html`<${Asking} of=${asked} path=${path} mayDecide=${asked.mayDecide} done=${done} />`;
  }
  const waits = call.outcome === "asking"; // approved, and the client has not called again yet
  const head = {
    id: call.id,
    state: call.outcome,
    reason: call.reason,
    address: call.tool,
    summary: waits ? t("call.approved") : words(call.reason),
    ms: call.seconds === null ? null : call.seconds * 1000,
  };
  return html`<${CallCard} key=${call.outcome} call=${head} open>
    ${asked?.decidedBy && html`<p class="muted small">${t(`call.decided.${asked.state === "denied" ? "denied" : "approved"}`, { by: asked.decidedBy, time: ago(asked.decidedAt ?? asked.created) })}</p>`}
    ${call.arguments !== null && call.arguments !== undefined
      ? html`<${Arguments} value=${call.arguments} />`
      : html`<p class="muted">${t("audit.hash.only")}</p>`}
    ${call.result && html`<${JsonView} value=${call.result} open=${3} />`}
  <//>`;
}
