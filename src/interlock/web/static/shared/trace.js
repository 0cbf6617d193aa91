// The link to a call's trace in the operators' tool.

import { me } from "./session.js";
import { t } from "./text.js";
import { html } from "./view.js";

/**
 * Show nothing if the gateway has no `telemetry.link`, or if the call has no trace.
 * @param {{of: string | undefined}} props The call's `traceparent`.
 */
export function TraceLink({ of }) {
  const link = me.value && me.value.traces;
  const id = of?.split("-")[1];
  return link && id && html`<a href=${link.replaceAll("{trace_id}", id)} target="_blank" rel="noreferrer">${t("trace")}</a>`;
}
