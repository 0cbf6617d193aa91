// One call at an address of its own.

import { Asking } from "../shared/asking.js";
import { Head } from "../shared/frame.js";
import { Missing, useLoad } from "../shared/load.js";
import { TraceLink } from "../shared/trace.js";
import { html, useEffect } from "../shared/view.js";
import { CallBody, reasonOf } from "./call.js";
import { CallCard } from "../shared/card.js";
import { t } from "./text.js";

/** @param {{id: string, side: any}} props */
export function OneCall({ id, side }) {
  const path = `/api/calls/${encodeURIComponent(id)}`;
  const loaded = useLoad(path, { every: 5_000 });
  const call = loaded.data;
  useEffect(() => {
    document.title = `${t("call")} – interlock`;
  }, []);
  return html`<${Head} title=${t("call")} about=${id} side=${side} />
    <div class="body">
      <div class="transcript">
        ${call
          ? html`<${Found} call=${call} path=${path} done=${loaded.reload} />
              <${TraceLink} of=${call.traceparent} />
              ${call.conversation_id && html`<p><a href=${`/c/${call.conversation_id}`}>${t("call.conversation")}</a></p>`}`
          : html`<${Missing} of=${loaded} />`}
      </div>
    </div>`;
}

/** @param {{call: any, path: string, done: () => Promise<unknown>}} props */
function Found({ call, path, done }) {
  if (call.asked?.state === "pending") {
    return html`<${Asking} of=${call.asked} path=${path} mayDecide=${call.asked.mayDecide} done=${done} />`;
  }
  const head = {
    id: call.id,
    state: call.outcome,
    reason: call.reason,
    address: call.tool,
    summary: call.outcome === "failed" ? call.reason.replaceAll("_", " ") : reasonOf(call.outcome, call.reason),
    ms: call.seconds === null ? null : call.seconds * 1000,
  };
  const card = {
    key: call.tool_call_id ?? call.id,
    id: call.id,
    state: call.outcome,
    tool: call.tool,
    arguments: call.arguments,
    result: "",
    truncated: false,
    reason: call.reason,
    seconds: call.seconds,
    started: 0,
    progress: null,
    approval: null,
    decided: call.approval,
    hasResult: call.conversation_id !== null,
  };
  return html`<${CallCard} call=${head} open><${CallBody} card=${card} /><//>`;
}
