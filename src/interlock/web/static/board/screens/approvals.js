// Approvals: what waits with everything that is needed to decide, and what was decided.

import { html } from "../../shared/view.js";
import { Asking } from "../../shared/asking.js";
import { ago, duration } from "../../shared/format.js";
import { Missing, useLoad } from "../../shared/load.js";
import { Address, Foreign } from "../../shared/marks.js";
import { Chip } from "../../shared/outcomes.js";
import { may } from "../../shared/session.js";
import { API } from "../parts.js";
import { countWaiting, Screen } from "../side.js";
import { t } from "../text.js";

/** @typedef {import("../../shared/asking.js").Approval} Approval */

/** @param {{id: string, done: () => void}} given */
function Waiting({ id, done }) {
  const path = `${API}/approvals/${id}`;
  const one = useLoad(path);
  return one.data
    ? html`<${Asking} of=${one.data} path=${path} mayDecide=${may("admin:approve")} done=${done} />`
    : html`<${Missing} of=${one} />`;
}

export default function Approvals() {
  const open = useLoad(`${API}/approvals?state=pending&limit=100`, { every: 20_000 });
  const all = useLoad(`${API}/approvals?limit=100`, { every: 20_000 });
  const reload = () => Promise.all([open.reload(), all.reload(), countWaiting()]);
  /** @type {Approval[]} */
  const waiting = open.data ?? [];
  /** @type {Approval[]} */
  const decided = (all.data ?? []).filter((/** @type {Approval} */ each) => each.state !== "pending");
  const times = decided.filter((each) => each.decidedAt)
    .map((each) => new Date(each.decidedAt ?? 0).getTime() - new Date(each.created).getTime());
  const mean = times.length ? times.reduce((sum, each) => sum + each, 0) / times.length : null;
  const about = open.data && (mean === null ? t("approvals.about", { n: waiting.length }) : t("approvals.mean", { n: waiting.length, time: duration(mean) }));
  return html`<${Screen} title=${t("nav.approvals")} about=${about}>
    <div class="stack">
      <section class="stack tight" aria-label=${t("approvals.open")}>
        ${!open.data && html`<${Missing} of=${open} />`}
        ${open.data && waiting.length === 0 && html`<div class="box"><p class="empty"><strong>${t("approvals.none")}</strong>${t("approvals.none.why")}</p></div>`}
        ${waiting.map((each) => html`<${Waiting} key=${each.id} id=${each.id} done=${reload} />`)}
      </section>
      ${decided.length > 0 && html`<section class="box" aria-labelledby="history-title">
        <div class="box-head"><h2 id="history-title">${t("approvals.history")}</h2></div>
        <div class="scroll-x" tabindex="0" role="region" aria-labelledby="history-title"><table>
          <thead><tr><th>${t("audit.ended")}</th><th>${t("audit.call")}</th><th>${t("approvals.asked")}</th><th>${t("approvals.by")}</th><th class="wide">${t("approvals.note")}</th></tr></thead>
          <tbody>${decided.map((each) => html`<tr>
            <td class="tight"><${Chip} tone=${each.state === "denied" ? "failed" : each.state === "expired" ? "quiet" : "ran"}
              icon=${each.state === "denied" ? "cross" : each.state === "expired" ? "clock" : "check"}>${t(/** @type {any} */ (`approval.${each.state}`))}<//></td>
            <td><${Address} address=${each.tool} /></td>
            <td class="muted">${t("approvals.asked.by", { user: each.user, time: ago(each.created) })}</td>
            <td>${each.decidedBy ?? "–"}</td>
            <td class="muted wide">${each.note && html`<${Foreign} text=${each.note} />`}</td>
          </tr>`)}</tbody>
        </table></div>
      </section>`}
    </div>
  <//>`;
}
