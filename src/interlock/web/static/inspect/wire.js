// The wire: every message, stderr line and HTTP exchange in one order, and one of them in full.

import { size as sized, duration } from "../shared/format.js";
import { parse } from "../shared/exact.js";
import { Icon } from "../shared/icons.js";
import { JsonView } from "../shared/json.js";
import { marked } from "../shared/marks.js";
import { Copy } from "../shared/dialog.js";
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../shared/view.js";
import { save } from "../shared/save.js";
import { chosen, dropped, entries, recorded, inspection, wholeText } from "./state.js";
import { t } from "./text.js";

const SHOWN = 400; // lines that exist at once; older ones are a click away

/** What "Edit and send" opens: a method and its params. */
export const edited = signal(/** @type {{method: string, params: any} | null} */ (null));

export function Wire() {
  const [paused, setPaused] = useState(/** @type {import("./types.js").Entry[] | null} */ (null));
  const [filter, setFilter] = useState("");
  const [search, setSearch] = useState("");
  const [shown, setShown] = useState(SHOWN);
  const all = paused ?? entries.value;
  const methods = useMemo(() => [...new Set(all.map((each) => each.method).filter(Boolean))].sort(), [all]);
  const wanted = search.toLowerCase();
  const found = all.filter((each) => {
    if (filter === "bad" && !isBad(each)) return false;
    if (filter === "messages" && !each.form) return false;
    if (filter.startsWith("m:") && each.method !== filter.slice(2)) return false;
    return wanted === "" || (each.text + (each.method ?? "")).toLowerCase().includes(wanted);
  });
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const atEnd = useRef(true);
  useLayoutEffect(() => {
    const element = list.current;
    if (element && atEnd.current) element.scrollTop = element.scrollHeight;
  }, [found.length]);
  const selected = all.find((each) => each.n === chosen.value);
  return html`<section class="wire" aria-label=${t("wire")}>
    <div class="row wire-head">
      <h2>${t("wire")}</h2>
      <select aria-label=${t("wire.filter")} value=${filter} onChange=${(/** @type {any} */ event) => setFilter(event.currentTarget.value)}>
        <option value="">${t("wire.all")}</option>
        <option value="messages">${t("wire.messages")}</option>
        <option value="bad">${t("wire.bad")}</option>
        ${methods.map((each) => html`<option value=${`m:${each}`}>${each}</option>`)}
      </select>
      <span class="grow"></span>
      <button type="button" class="button plain" aria-pressed=${String(paused !== null)} onClick=${() => setPaused(paused ? null : entries.value)}>
        <${Icon} name=${paused ? "play" : "pause"} />${t(paused ? "wire.go" : "wire.pause")}
      </button>
      <button type="button" class="button plain" onClick=${async () => save(new Blob([await recorded()], { type: "application/x-ndjson" }), `${inspection.value?.server ?? "wire"}.jsonl`)}>
        <${Icon} name="export" />${t("wire.record")}
      </button>
    </div>
    <div class="wire-search">
      <input class="input" type="search" aria-label=${t("wire.search")} placeholder=${t("wire.search")} value=${search} onInput=${(/** @type {any} */ event) => setSearch(event.currentTarget.value)} />
    </div>
    ${paused && entries.value.length > paused.length && html`<p class="small muted wire-note">${t("wire.new", { n: entries.value.length - paused.length })}</p>`}
    ${dropped.value > 0 && html`<p class="small muted wire-note">${t("wire.dropped", { n: dropped.value })}</p>`}
    <div
      class="wire-list"
      role="group"
      tabindex="0"
      aria-label=${t("wire.entries")}
      ref=${list}
      onScroll=${(/** @type {any} */ event) => {
        const { scrollTop, scrollHeight, clientHeight } = event.currentTarget;
        atEnd.current = scrollHeight - scrollTop - clientHeight < 24;
      }}
    >
      ${found.length > shown && html`<button type="button" class="link wire-note" onClick=${() => setShown(shown + SHOWN)}>${t("more", { n: found.length - shown })}</button>`}
      ${found.length === 0 && html`<p class="small muted wire-note">${t(all.length ? "wire.nothing" : "wire.empty")}</p>`}
      ${found.slice(-shown).map((each) => html`<${Line} key=${each.n} entry=${each} isChosen=${each.n === chosen.value} />`)}
    </div>
    ${selected && html`<${Detail} key=${selected.n} entry=${selected} />`}
    <${Conformance} />
  </section>`;
}

/** @param {import("./types.js").Entry} entry */
const isBad = (entry) => entry.form === "invalid" || entry.form === "error" || Boolean(entry.problem) || entry.kind === "lost";

/** @type {Record<string, [string, string]>} */
const ARROWS = { sent: ["send", "wire.sent"], received: ["back", "wire.received"] };

/** @param {{entry: import("./types.js").Entry, isChosen: boolean}} props */
function Line({ entry, isChosen }) {
  const arrow = ARROWS[entry.kind];
  return html`<button
    type="button"
    class=${`wire-line ${isChosen ? "chosen" : ""} ${isBad(entry) ? "bad" : ""}`}
    aria-pressed=${String(isChosen)}
    data-entry=${entry.n}
    data-kind=${entry.kind}
    onClick=${() => (chosen.value = isChosen ? 0 : entry.n)}
  >
    <span class="at">${entry.at.toFixed(3)}</span>
    <span class="arrow">${arrow ? html`<span aria-hidden="true">${entry.kind === "sent" ? "→" : "←"}</span><span class="hidden">${t(/** @type {any} */ (arrow[1]))}</span>` : html`<span aria-hidden="true">·</span>`}</span>
    <span class="what">${marked(whatOf(entry))}</span>
    <span class="took">${entry.ms === undefined ? sized(entry.size) : duration(entry.ms)}</span>
  </button>`;
}

/** @param {import("./types.js").Entry} entry */
function whatOf(entry) {
  const first = entry.text.split("\n", 1)[0] ?? "";
  if (entry.form === "invalid") return entry.problem ? `${t("wire.invalid")}: ${first.slice(0, 120)}` : t("wire.batch");
  if (entry.form) {
    const method = entry.method ?? "";
    if (entry.form === "result") return method ? t("wire.result", { method: short(entry) }) : t("wire.unasked");
    if (entry.form === "error") return t("wire.error", { method: short(entry) });
    return short(entry);
  }
  if (entry.kind === "http") {
    const status = entry.text.split("\n\n")[1]?.split("\n", 1)[0] ?? "";
    return `${first.slice(0, 80)} ${status}`;
  }
  return `${entry.kind}: ${first.slice(0, 200)}`;
}

/** @param {import("./types.js").Entry} entry */
function short(entry) {
  return entry.name ? `${entry.method} ${entry.name}` : (entry.method ?? "");
}

/** @param {{entry: import("./types.js").Entry}} props */
function Detail({ entry }) {
  const [text, setText] = useState(entry.text);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (entry.isCut) void wholeText(entry.n).then(setText);
    document.querySelector(`[data-entry="${entry.n}"]`)?.scrollIntoView({ block: "nearest" });
  }, [entry.n]);
  const parsed = useMemo(() => jsonOf(text), [text]);
  const isRequest = entry.kind === "sent" && entry.form === "request" && parsed;
  return html`<div class="wire-detail" ref=${box}>
    <div class="row">
      <strong class="grow mono small">${marked(entry.method ?? entry.kind)} ${entry.id !== undefined && html`<span class="muted">id ${String(entry.id)}</span>`}</strong>
      <${Copy} text=${text} />
      ${isRequest &&
      html`<button type="button" class="button plain" onClick=${() => (edited.value = { method: parsed.method, params: withoutMeta(parsed.params) })}>
        <${Icon} name="turning" />${t("wire.edit")}
      </button>`}
    </div>
    ${entry.problem && html`<p class="problem small">${marked(entry.problem)}</p>`}
    <div class="wire-text" tabindex="0" role="group" aria-label=${t("wire.text")}>
      ${parsed === undefined ? html`<pre class="json">${marked(text)}</pre>` : html`<${JsonView} value=${parsed} open=${3} />`}
    </div>
  </div>`;
}

/** @param {string} text @returns {any} */
function jsonOf(text) {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return parse(text);
  } catch {
    return undefined;
  }
}

/** @param {any} params */
function withoutMeta(params) {
  const { _meta: _, ...rest } = params ?? {};
  return rest;
}

/** What breaks the specification, of all that was seen. */
function Conformance() {
  const now = inspection.value;
  const [isOpen, setOpen] = useState(false);
  if (!now || now.state === "starting") return null;
  if (now.state === "failed" && !now.remarks?.length) return null; // nothing was negotiated
  const remarks = now.remarks ?? [];
  const revision = now.revision || now.era;
  if (remarks.length === 0) {
    return html`<div class="note tone-ran wire-remarks"><${Icon} name="check" /><div>${t("remarks.none", { revision })}</div></div>`;
  }
  const errors = remarks.filter((each) => each.level === "error").length;
  return html`<div class=${`note wire-remarks ${errors ? "tone-failed" : "tone-running"}`}>
    <${Icon} name=${errors ? "warning" : "eye"} />
    <div class="grow">
      ${errors ? t("remarks.errors", { n: errors, revision }) : t("remarks.kept", { revision })}${" "}
      <button type="button" class="link" aria-expanded=${String(isOpen)} onClick=${() => setOpen(!isOpen)}>${t("remarks.count", { n: remarks.length })}</button>
      ${isOpen &&
      html`<ul class="remarks">
        ${remarks.map((each) => html`<li><span class="mono">${marked(each.about)}</span>: ${marked(each.text)}</li>`)}
      </ul>`}
    </div>
  </div>`;
}
