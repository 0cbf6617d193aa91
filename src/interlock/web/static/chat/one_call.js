// One call at an address of its own.

import { Head } from "../shared/frame.js";
import { Missing, useLoad } from "../shared/load.js";
import { page } from "../shared/page.js";
import { html, useEffect } from "../shared/view.js";
import { CallBody, reasonOf } from "./call.js";
import { CallCard } from "../shared/card.js";
import { t } from "./text.js";

/** @param {{id: string, side: any}} props */
export function OneCall({ id, side }) {
  const loaded = useLoad(`/api/calls/${encodeURIComponent(id)}`);
  const call = loaded.data;
  useEffect(() => {
    document.title = `${t("call")} – interlock`;
  }, []);
  return html`<${Head} title=${t("call")} about=${id} side=${side} />
    <div class="body">
      <div class="transcript">
        ${call
          ? html`<${Found} call=${call} />
              <p><a href=${`${page.base}/c/${call.conversation_id}`}>${t("call.conversation")}</a></p>`
          : html`<${Missing} of=${loaded} />`}
      </div>
    </div>`;
}

/** @param {{call: any}} props */
function Found({ call }) {
  const head = {
    id: call.id,
    state: call.outcome,
    address: call.tool,
    summary: reasonOf(call.outcome, call.reason),
    ms: call.seconds * 1000,
  };
  const card = {
    key: call.tool_call_id,
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
    hasResult: true,
  };
  return html`<${CallCard} call=${head} open><${CallBody} card=${card} /><//>`;
}
