// The audit trail: filters in the address, bars by outcome, a table in a window, a live tail, and
// the record of one call.

import { html, useCallback, useEffect, useRef, useState } from "../../shared/view.js";
import { ApiError, getPart, pageKey, post } from "../../shared/api.js";
import { Legend, StackedBars } from "../../shared/chart.js";
import { Copy } from "../../shared/dialog.js";
import { day, duration, instant, size } from "../../shared/format.js";
import { Icon } from "../../shared/icons.js";
import { JsonView } from "../../shared/json.js";
import { Missing, Problem, useLoad } from "../../shared/load.js";
import { Address, Foreign } from "../../shared/marks.js";
import { OutcomeChip, outcomeOf } from "../../shared/outcomes.js";
import { go } from "../../shared/route.js";
import { save as saveAs } from "../../shared/save.js";
import { Tabs } from "../../shared/tabs.js";
import { t as common } from "../../shared/text.js";
import { TraceLink } from "../../shared/trace.js";
import { Window } from "../../shared/window.js";
import { API, bucketsOf, Explained, nameOf, partsOf, typed, words } from "../parts.js";
import { Screen } from "../side.js";
import { t } from "../text.js";

const FILTERS = /** @type {const} */ (["tool", "user", "key", "status", "reason", "since", "until"]);
const STATUSES = ["ok", "tool_error", "error", "timeout", "cancelled", "refused", "asked", "running", "unfinished"];
const PAGE = 200;
const TAIL = 2_000; // milliseconds between two looks for newer records

/**
 * @typedef {object} CallLine
 * @property {string} [call]
 * @property {string} at
 * @property {string} [user]
 * @property {string} [key]
 * @property {string} [tool]
 * @property {string} [status]
 * @property {string} [reason]
 * @property {string} [rule]
 * @property {number} [ms]
 * @property {number} [bytes]
 * @property {string} [risk]
 */

/** @param {CallLine} line */
const idOf = (line) => line.call ?? `${line.at}${line.user ?? ""}${line.reason ?? ""}`.replace(/\W/g, "");

/** @param {URLSearchParams} query */
function filtersOf(query) {
  return Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""]).filter(([, value]) => value));
}

/** @param {{query: URLSearchParams}} props */
export default function Audit({ query }) {
  const filters = filtersOf(query);
  const isLive = query.get("live") === "1";
  const chosen = query.get("call") ?? "";
  const text = new URLSearchParams(filters).toString();
  const [lines, setLines] = useState(/** @type {CallLine[] | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const next = useRef("");
  const isLoading = useRef(false);
  const keys = useLoad(`${API}/keys?limit=500`);
  const names = new Map((keys.data ?? []).map((/** @type {import("../parts.js").Key} */ each) => [each.id, each.name]));
  const [verified, setVerified] = useState(/** @type {any} */ (null));

  const load = useCallback(async (/** @type {string} */ path, /** @type {(found: CallLine[]) => void} */ take) => {
    if (isLoading.current) return;
    isLoading.current = true;
    try {
      let part = await getPart(path);
      while (part.items.length === 0 && part.next) part = await getPart(part.next); // it searches on
      next.current = part.next;
      take(part.items);
      setError(null);
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setError(problem);
    } finally {
      isLoading.current = false;
    }
  }, []);
  const first = useCallback(() => load(`${API}/audit?limit=${PAGE}${text && `&${text}`}`, setLines), [text]);
  useEffect(() => {
    setLines(null);
    isLoading.current = false;
    void first();
  }, [first]);
  const more = useCallback(() => {
    if (next.current) void load(next.current, (/** @type {CallLine[]} */ found) => setLines((before) => [...(before ?? []), ...found]));
  }, []);

  // Newer records are added on top, and those that were still running are replaced.
  const newest = useRef(/** @type {CallLine[]} */ ([]));
  newest.current = lines ?? [];
  useEffect(() => {
    if (!isLive) return undefined;
    const look = async () => {
      if (document.hidden) return;
      const known = new Set(newest.current.map(idOf));
      const found = await newer(text, known).catch(() => null);
      if (found) setLines((before) => merged(found, before ?? []));
    };
    const timer = setInterval(look, TAIL);
    void look();
    return () => clearInterval(timer);
  }, [isLive, text]);

  /** @param {Record<string, string>} change */
  function to(change) {
    const wanted = new URLSearchParams(query);
    for (const [name, value] of Object.entries(change)) value ? wanted.set(name, value) : wanted.delete(name);
    go(`/gateway/audit?${wanted}`);
  }
  async function verify() {
    setVerified("running");
    try {
      setVerified(await post(`${API}/audit/verify`));
    } catch (problem) {
      if (!(problem instanceof ApiError)) throw problem;
      setVerified(null);
      setError(problem);
    }
  }

  const exported = new URLSearchParams(Object.entries(filters).filter(([name]) => name === "since" || name === "until"));
  const tools = html`<button class="button" onClick=${verify} disabled=${verified === "running"}><${Icon} name="check" />${t("audit.verify")}</button>
    <${Export} query=${exported.toString()} />`;
  const panel = chosen && lines ? html`<${Record} key=${chosen} id=${chosen} line=${lines.find((each) => idOf(each) === chosen)} close=${() => to({ call: "" })} />` : null;
  return html`<${Screen} title=${t("nav.audit")} tools=${tools} panel=${panel} closePanel=${() => to({ call: "" })}
    about=${verified && verified !== "running" ? t(verified.whole ? "audit.whole" : "audit.broken", { n: verified.records }) : null}>
    <div class="audit">
      <${Filters} filters=${filters} to=${to} isLive=${isLive} />
      ${verified && verified !== "running" && !verified.whole && html`<div class="note tone-failed" role="alert"><${Icon} name="warning" />
        <div>${verified.problems.map((/** @type {any} */ each) => html`<div>${Object.values(each).join(" ")}</div>`)}</div></div>`}
      <${Bars} filters=${filters} to=${to} />
      ${error && html`<${Problem} error=${error} again=${first} />`}
      ${lines && lines.length === 0 && html`<div class="box"><p class="empty"><strong>${t("audit.none")}</strong>${t(text ? "audit.none.filter" : "audit.none.why")}</p></div>`}
      ${lines && lines.length > 0 && html`<div class="box fill"><${Window}
        label=${t("nav.audit")}
        rows=${lines}
        id=${idOf}
        kind="audit-line"
        heads=${[t("audit.time"), t("audit.who"), t("audit.call"), t("audit.ended"), t("audit.took"), t("audit.why")]}
        cells=${(/** @type {CallLine} */ line) => cellsOf(line, names)}
        chosen=${chosen}
        choose=${(/** @type {CallLine} */ line) => to({ call: idOf(line) })}
        end=${more}
      /></div>`}
    </div>
  <//>`;
}

/**
 * Return the lines that are newer than the known ones, reading on until a known one appears.
 * @param {string} text
 * @param {Set<string>} known
 */
async function newer(text, known) {
  let path = `${API}/audit?limit=${PAGE}${text && `&${text}`}`;
  /** @type {CallLine[]} */
  const found = [];
  while (path) {
    const part = await getPart(path);
    found.push(...part.items);
    if (known.size === 0 || part.items.some((each) => known.has(idOf(each)))) break;
    path = part.next;
  }
  return found;
}

/** @param {CallLine[]} found @param {CallLine[]} before */
function merged(found, before) {
  const ids = new Set(found.map(idOf));
  return [...found, ...before.filter((each) => !ids.has(idOf(each)))].sort((a, b) => b.at.localeCompare(a.at));
}

/** @param {CallLine} line @param {Map<string, string>} names Of keys, by id. */
function cellsOf(line, names) {
  const at = instant(line.at);
  return [
    html`<span class="mono">${at.slice(0, -4)}<span class="fraction">${at.slice(-4)}</span></span>`,
    html`<span class="mono">${names.get(line.key ?? "") || (line.user ?? "").replace(/^user:/, "")}</span>`,
    line.tool ? html`<${Address} address=${line.tool} />` : "–",
    html`<${OutcomeChip} state=${outcomeOf(line.status, line.reason)} reason=${line.reason} />`,
    html`<span class="number">${duration(line.ms)}</span>`,
    html`<span class="muted">${[words(line.reason ?? ""), line.rule && t("audit.rule", { rule: line.rule })].filter(Boolean).join(", ")}</span>`,
  ];
}

/** @param {{filters: Record<string, string>, to: (change: Record<string, string>) => void, isLive: boolean}} props */
function Filters({ filters, to, isLive }) {
  const [search, setSearch] = useState(filters.tool ?? "");
  useEffect(() => setSearch(filters.tool ?? ""), [filters.tool]);
  return html`<form class="row wrap" role="search" onSubmit=${(/** @type {Event} */ event) => {
      event.preventDefault();
      to({ tool: search.trim() });
    }}>
    <input class="input narrow" type="search" aria-label=${t("audit.tool")} placeholder=${t("audit.tool")} value=${search}
      onInput=${typed(setSearch)} />
    <select aria-label=${t("audit.time")} value=${["1h", "24h", "7d"].includes(filters.since ?? "") ? filters.since : ""}
      onChange=${typed((since) => to({ since, until: "" }))}>
      <option value="">${t("audit.always")}</option>
      ${["1h", "24h", "7d"].map((each) => html`<option value=${each}>${t(/** @type {any} */ (`range.${each}`))}</option>`)}
    </select>
    <select aria-label=${t("audit.ended")} value=${filters.status ?? ""}
      onChange=${typed((status) => to({ status }))}>
      <option value="">${t("audit.any")}</option>
      ${STATUSES.map((each) => html`<option value=${each}>${words(each)}</option>`)}
    </select>
    ${Object.entries(filters).filter(([name]) => name !== "status").map(([name, value]) => html`<span class="filter">
      <span class="muted">${t(/** @type {any} */ (`filter.${name}`))}</span> <strong><${Foreign} text=${value} /></strong>
      <button type="button" aria-label=${t("filter.remove", { name })} onClick=${() => to({ [name]: "" })}><${Icon} name="cross" /></button>
    </span>`)}
    <button type="button" class="switch live" role="switch" aria-checked=${String(isLive)} onClick=${() => to({ live: isLive ? "" : "1" })}>
      ${t("audit.live")}<span class="track"></span>
    </button>
  </form>`;
}

/** @param {{filters: Record<string, string>, to: (change: Record<string, string>) => void}} props */
function Bars({ filters, to }) {
  const time = { since: filters.since || "24h", ...(filters.until && { until: filters.until }) };
  const series = useLoad(`${API}/audit/series?${new URLSearchParams({ by: "outcome", buckets: "60", ...time })}`);
  if (!series.data) return series.error ? html`<${Missing} of=${series} />` : html`<div class="box bars"></div>`;
  const parts = partsOf(series.data);
  return html`<section class="box bars" aria-label=${t("overview.chart")}>
    <div class="box-body">
      <${StackedBars} label=${t("overview.chart")} buckets=${bucketsOf(series.data)} parts=${parts} names=${nameOf} height=${84}
        choose=${(/** @type {string} */ since, /** @type {string} */ until) => to({ since, until })} />
      <${Legend} parts=${parts} names=${nameOf} />
    </div>
  </section>`;
}

/** @param {{query: string}} props */
function Export({ query }) {
  const [busy, setBusy] = useState(false);
  async function save() {
    setBusy(true);
    try {
      // A plain link would not send the page key.
      const headers = { "X-Interlock-Key": pageKey() ?? "" };
      const answer = await fetch(`${API}/audit/export${query && `?${query}`}`, { headers });
      saveAs(await answer.blob(), `audit-${new Date().toISOString().slice(0, 10)}.ndjson`);
    } finally {
      setBusy(false);
    }
  }
  return html`<button class="button" onClick=${save} disabled=${busy}><${Icon} name="export" />${t("audit.export")}</button>`;
}

/**
 * The records of one call, and why it was decided as it was. A call of a tool that does not exist
 * for its caller is only counted: its line is all there is.
 * @param {{id: string, line: CallLine | undefined, close: () => void}} props
 */
function Record({ id, line, close }) {
  const isCounted = line !== undefined && !line.call;
  const records = useLoad(isCounted ? null : `${API}/audit/${encodeURIComponent(id)}`);
  const [tab, setTab] = useState("explain");
  /** @type {any[]} */
  const all = records.data ?? [];
  const begin = all.find((each) => each.kind === "intent" || each.kind === "asked" || each.kind === "refused") ?? line;
  const end = all.find((each) => each.kind === "outcome" || each.kind === "unfinished");
  const unlisted = useLoad(line ? null : `/api/calls/${encodeURIComponent(id)}`).data;
  const state = line ? outcomeOf(line.status, line.reason) : unlisted?.outcome;
  const reason = line ? line.reason : unlisted?.reason;
  return html`<div class="record" data-call=${id} data-state=${state}>
    <div class="box-head">
      ${state && html`<${OutcomeChip} state=${state} reason=${reason} />`}
      <span class="took">${duration(end?.ms ?? line?.ms)}</span>
      <button class="button plain only" aria-label=${common("close")} onClick=${close}><${Icon} name="cross" /></button>
    </div>
    <div class="record-about">
      ${begin?.tool && html`<div><${Address} address=${begin.tool} /></div>`}
      <div class="muted small">${begin && t("audit.by", { user: begin.user ?? "–", time: `${day(begin.at)}, ${instant(begin.at)}` })}</div>
      ${reason && html`<div class="small">${words(reason)}</div>`}
      <div class="small"><${TraceLink} of=${all.find((each) => each.traceparent)?.traceparent} /></div>
    </div>
    ${records.error && html`<${Problem} error=${records.error} />`}
    ${begin && html`<${Tabs} label=${t("audit.record")} chosen=${tab} choose=${setTab}
      tabs=${[{ id: "explain", title: t("audit.explain") }, ...(isCounted ? [] : [{ id: "arguments", title: t("audit.arguments") }, { id: "chain", title: t("audit.chain"), of: String(all.length || "") }])]}>
      ${tab === "explain" && html`<${ExplainRecord} begin=${begin} />`}
      ${tab === "arguments" && html`<div class="box-body">
        ${begin.arguments === undefined ? html`<p class="muted">${t("audit.hash.only")}</p>` : html`<${JsonView} value=${begin.arguments} open=${4} />`}
        <dl class="facts">
          ${begin.hash && html`<dt>${t("audit.hash")}</dt><dd class="mono">${begin.hash}</dd>`}
          ${begin.bytes !== undefined && html`<dt>${t("audit.sent")}</dt><dd>${size(begin.bytes)}</dd>`}
          ${end?.bytes !== undefined && html`<dt>${t("audit.result")}</dt><dd>${size(end.bytes)}</dd>`}
        </dl></div>`}
      ${tab === "chain" && html`<div class="box-body stack tight">
        ${all.map((each) => html`<details><summary><strong>${words(each.kind)}</strong> <span class="muted mono small">${instant(each.at)} ${each.writer ?? ""} ${each.seq ?? ""}</span></summary><${JsonView} value=${each} /></details>`)}
        <${Copy} text=${`interlock audit show ${id}`} label=${t("copy.command")} />
      </div>`}
    <//>`}
  </div>`;
}

/** @param {{begin: any}} props */
function ExplainRecord({ begin }) {
  const [found, setFound] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const isCall = begin.tool && (begin.key || begin.user);
  useEffect(() => {
    if (!isCall) return undefined;
    let current = true;
    const who = begin.key ? { key: begin.key } : { user: begin.user };
    post(`${API}/explain`, { ...who, address: begin.tool, ...(begin.arguments && { arguments: begin.arguments }) }).then(
      (answer) => current && setFound(answer),
      (problem) => current && problem instanceof ApiError && setError(problem),
    );
    return () => {
      current = false;
    };
  }, [begin.tool, begin.key, begin.user]);
  const who = begin.key ? `--key ${begin.key}` : `--user ${(begin.user ?? "").replace(/^user:/, "")}`;
  if (!isCall) return html`<p class="box-body muted small">${t("audit.now.none")}</p>`;
  return html`<div class="box-body stack tight">
    <p class="muted small">${t(begin.arguments === undefined ? "audit.now.open" : "audit.now")}</p>
    ${error && html`<${Problem} error=${error} />`}
    ${found && html`<${Explained} of=${found} command=${`interlock explain ${who} ${begin.tool}`} />`}
  </div>`;
}
