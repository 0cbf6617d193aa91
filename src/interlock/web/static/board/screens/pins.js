// Pins: definitions that changed or are new, beside what was accepted, and the decision about them.

import { html, useState } from "../../shared/view.js";
import { post } from "../../shared/api.js";
import { Confirm } from "../../shared/dialog.js";
import { stringify } from "../../shared/exact.js";
import { ago, day } from "../../shared/format.js";
import { Icon } from "../../shared/icons.js";
import { Missing, useLoad } from "../../shared/load.js";
import { Address, marked } from "../../shared/marks.js";
import { OutcomeChip, Chip } from "../../shared/outcomes.js";
import { may } from "../../shared/session.js";
import { Tabs } from "../../shared/tabs.js";
import { changes } from "../changes.js";
import { API } from "../parts.js";
import { remarksOn } from "../remarks.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

/**
 * @typedef {object} Pin
 * @property {string} server
 * @property {string} kind
 * @property {string} [tool]
 * @property {"accepted" | "changed" | "new" | "gone"} state
 * @property {string} [since]
 * @property {string} [hash]
 * @property {string} [seenHash]
 * @property {string} [risk]
 * @property {string} [decidedBy]
 * @property {string} [decidedAt]
 */

/** @param {Pin} pin */
const addressOf = (pin) => pin.tool ?? pin.server;

export default function Pins() {
  const pins = useLoad(`${API}/lock`, { every: 30_000 });
  /** @type {Pin[]} */
  const all = pins.data ?? [];
  const changed = all.filter((each) => each.state === "changed");
  const fresh = all.filter((each) => each.state === "new");
  const waits = [...changed, ...fresh];
  const rest = all.filter((each) => !waits.includes(each));
  return html`<${Screen} title=${t("nav.pins")} about=${pins.data && t("pins.about", { accepted: rest.length, changed: changed.length, fresh: fresh.length })}>
    ${!pins.data && html`<${Missing} of=${pins} />`}
    ${pins.data && html`<div class="stack">
      ${waits.length === 0 && html`<div class="box"><p class="empty"><strong>${t("pins.none")}</strong>${t("pins.none.why")}</p></div>`}
      ${waits.map((each, index) => html`<${Waiting} key=${addressOf(each) + each.kind} of=${each} open=${index === 0} done=${pins.reload} />`)}
      ${rest.length > 0 && html`<section class="box" aria-labelledby="accepted-title">
        <div class="box-head"><h2 id="accepted-title">${t("pins.accepted")}</h2></div>
        <div class="scroll-x" tabindex="0" role="region" aria-labelledby="accepted-title"><table>
          <thead><tr><th>${t("pins.state")}</th><th>${t("pins.what")}</th><th>${t("pins.since")}</th><th class="wide">${t("pins.by")}</th><th class="wide">${t("pins.hash")}</th></tr></thead>
          <tbody>${rest.map((each) => html`<tr>
            <td class="tight"><${Chip} tone=${each.state === "accepted" ? "ran" : "quiet"} icon=${each.state === "accepted" ? "check" : "minus"}>${t(`pin.${each.state}`)}<//></td>
            <td><${Address} address=${addressOf(each)} />${each.kind !== "tool" && html` <span class="muted small">${each.kind}</span>`}</td>
            <td class="tight muted">${each.since ? day(each.since) : "–"}</td>
            <td class="muted wide">${each.decidedBy ?? t("pins.first")}</td>
            <td class="mono small wide">${(each.hash ?? "").slice(0, 12)}</td>
          </tr>`)}</tbody>
        </table></div>
      </section>`}
    </div>`}
  <//>`;
}

/**
 * One definition that waits for a decision.
 * @param {{of: Pin, open: boolean, done: () => Promise<void>}} props
 */
function Waiting({ of, open, done }) {
  const [isOpen, setOpen] = useState(open);
  const [asks, setAsks] = useState("");
  const name = of.kind === "server" ? "" : (of.tool ?? "").slice(of.server.length + 1);
  const path = `${API}/lock/${encodeURIComponent(of.server)}/${encodeURIComponent(name || "-")}`;
  const shown = useLoad(isOpen ? path : null);
  const found = Array.isArray(shown.data) ? shown.data.find((/** @type {any} */ each) => each.kind === of.kind) : shown.data;
  const hash = found?.seenHash ?? of.seenHash;
  return html`<section class="box pin" data-state="held" data-pin=${addressOf(of)} aria-label=${addressOf(of)}>
    <div class="box-head">
      <${OutcomeChip} state="held" />
      <${Address} address=${addressOf(of)} />
      <span class="muted small grow">${t(`pins.${of.state === "new" ? "new" : "changed"}`, { time: of.since ? ago(of.since) : "" })}</span>
      <div class="end">
        ${!isOpen && html`<button class="button plain" onClick=${() => setOpen(true)}>${t("needs.compare")}</button>`}
        ${isOpen && found && may("admin:write") && html`
          <button class="button" onClick=${() => setAsks("accept")}>${t("pins.accept")}</button>
          <button class="button main" onClick=${() => setAsks("reject")}>${t("pins.refuse")}</button>`}
      </div>
    </div>
    ${isOpen && !found && html`<div><${Missing} of=${shown} /></div>`}
    ${isOpen && found && html`<div><${Compared} before=${found.accepted} after=${found.seen ?? found.accepted} of=${of} /></div>`}
    ${asks === "accept" && html`<${Confirm} title=${t("pins.accept.ask", { address: addressOf(of) })} does=${t("pins.accept.do")} danger close=${() => setAsks("")}
      act=${async () => {
        await post(`${path}/accept`, { hash });
        await done();
      }}><p>${t("pins.accept.why")}</p><p class="mono small">${(hash ?? "").slice(0, 24)}</p><//>`}
    ${asks === "reject" && html`<${Confirm} title=${t("pins.refuse.ask", { address: addressOf(of) })} does=${t("pins.refuse")} close=${() => setAsks("")}
      act=${async () => {
        await post(`${path}/reject`, { hash });
        await done();
      }}><p>${t("pins.refuse.why")}</p><//>`}
  </section>`;
}

/** @param {{before: any, after: any, of: Pin}} props */
function Compared({ before, after, of }) {
  const [tab, setTab] = useState("words");
  const parts = {
    words: [wordsOf(before), wordsOf(after)],
    arguments: [pretty(before?.inputSchema), pretty(after?.inputSchema)],
    rest: [pretty(restOf(before)), pretty(restOf(after))],
  };
  const differs = (/** @type {string[]} */ [a, b]) => (a === b ? "" : t("pins.differs"));
  const shown = tab in parts ? /** @type {any} */ (parts)[tab] : parts.words;
  const remarks = remarksOn(before, after);
  return html`<${Tabs} label=${addressOf(of)} chosen=${tab} choose=${setTab} tabs=${[
    { id: "words", title: t("pins.words"), of: differs(parts.words) },
    { id: "arguments", title: t("pins.arguments"), of: differs(parts.arguments) },
    { id: "rest", title: t("pins.rest"), of: differs(parts.rest) },
  ]}>
    <${Sides} before=${shown[0]} after=${shown[1]} byWord=${tab === "words"} of=${of} />
  <//>
  ${remarks.length > 0 && html`<div class="remarks">${remarks.map((each) => html`<div class="note tone-failed"><${Icon} name="warning" />
    <div>${t(each.kind, each.values)}</div></div>`)}</div>`}`;
}

/** @param {{before: string, after: string, byWord: boolean, of: Pin}} props */
function Sides({ before, after, byWord, of }) {
  const parts = changes(before, after, byWord);
  return html`<div class="sides">
    <div>
      <p class="muted small">${of.state === "new" ? t("pins.never") : t("pins.reviewed", { by: of.decidedBy ?? t("pins.first") })}</p>
      <pre>${parts.filter(({ kind }) => kind !== "added").map(({ kind, value }) => (kind === "removed" ? html`<del>${marked(value)}</del>` : marked(value)))}</pre>
    </div>
    <div>
      <p class="muted small">${t("pins.now")}</p>
      <pre>${parts.filter(({ kind }) => kind !== "removed").map(({ kind, value }) => (kind === "added" ? html`<ins>${marked(value)}</ins>` : marked(value)))}</pre>
    </div>
  </div>`;
}

/** @param {any} definition @returns {string} */
function wordsOf(definition) {
  if (!definition) return "";
  return [definition.title, definition.description, definition.instructions].filter(Boolean).join("\n\n");
}

/** @param {any} definition */
function restOf(definition) {
  if (!definition) return undefined;
  const { title: _title, description: _description, inputSchema: _schema, instructions: _text, ...rest } = definition;
  return rest;
}

/** @param {unknown} value @returns {string} */
function pretty(value) {
  return value === undefined ? "" : stringify(value, 2);
}
