// A tool, resource, template or prompt: its form, its definition, the call, and earlier calls.

import { Copy, Dialog } from "../shared/dialog.js";
import { ago, duration } from "../shared/format.js";
import { stringify } from "../shared/exact.js";
import { Guarded } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { JsonView } from "../shared/json.js";
import { ApiError } from "../shared/api.js";
import { Problem } from "../shared/load.js";
import { Foreign, marked } from "../shared/marks.js";
import { Chip, OutcomeChip } from "../shared/outcomes.js";
import { Tabs } from "../shared/tabs.js";
import { html, useEffect, useLayoutEffect, useMemo, useRef, useState } from "../shared/view.js";
import { Form, JsonField, Unsent, unsentIn } from "./form.js";
import { byPlace, example, initial, same } from "./model.js";
import { Result } from "./result.js";
import { check, draftOf, inspection, keepDraft, send, stop, texts } from "./state.js";
import { t as common } from "../shared/text.js";
import { t } from "./text.js";

/** @typedef {import("./types.js").Target} Target */

const RETURN = /Mac|iP/.test(navigator.platform) ? "⌘↵" : "Ctrl ↵";

/** The schema of what can be filled in. @param {Target} target */
function schemaOf({ kind, item }) {
  const { definition } = item;
  if (kind === "tool") return definition.inputSchema ?? { type: "object" };
  const texted = (/** @type {string} */ name, /** @type {any} */ more = {}) => [name, { type: "string", ...more }];
  if (kind === "prompt") {
    const given = Array.isArray(definition.arguments) ? definition.arguments : [];
    return {
      type: "object",
      properties: Object.fromEntries(given.map((/** @type {any} */ each) => texted(each.name, { description: each.description, title: each.title }))),
      required: given.filter((/** @type {any} */ each) => each.required).map((/** @type {any} */ each) => each.name),
      additionalProperties: false,
    };
  }
  if (kind === "template") {
    const names = [...new Set([...String(definition.uriTemplate).matchAll(/\{[+#./;?&]?([^}]+)\}/g)].flatMap((each) => (each[1] ?? "").split(",").map((name) => name.replace(/[*:].*$/, ""))))];
    return { type: "object", properties: Object.fromEntries(names.map((each) => texted(each))), additionalProperties: false };
  }
  return { type: "object", additionalProperties: false };
}

/** The method and params of a call. @param {Target} target @param {any} value */
function requestOf({ kind, name, item }, value) {
  if (kind === "tool") return /** @type {const} */ (["tools/call", { name, arguments: value }]);
  if (kind === "prompt") return /** @type {const} */ (["prompts/get", { name, arguments: value }]);
  const uri = kind === "resource" ? name : expanded(String(item.definition.uriTemplate), value);
  return /** @type {const} */ (["resources/read", { uri }]);
}

/** Fill a URI template in: the forms of RFC 6570 that servers use. @param {string} template @param {any} value */
export function expanded(template, value) {
  return template.replace(/\{([+#./;?&]?)([^}]+)\}/g, (_, operator, list) => {
    const names = list.split(",").map((/** @type {string} */ each) => each.replace(/[*:].*$/, ""));
    const given = names.filter((/** @type {string} */ each) => value?.[each] !== undefined && value[each] !== "");
    if (given.length === 0) return "";
    const encode = operator === "+" || operator === "#" ? encodeURI : encodeURIComponent;
    const isNamed = operator === "?" || operator === "&" || operator === ";";
    const parts = given.map((/** @type {string} */ each) => (isNamed ? `${each}=` : "") + encode(String(value[each])));
    const between = operator === "?" || operator === "&" ? "&" : ["/", ".", ";"].includes(operator) ? operator : ",";
    return (operator === "+" ? "" : operator) + parts.join(between);
  });
}

/** @param {{target: Target}} props */
export function Item({ target }) {
  const schema = useMemo(() => schemaOf(target), [stringify(target.item.definition)]);
  const key = `${target.kind}:${target.name}`;
  const [value, setValue] = useState(() => first(target, schema));
  const [view, setView] = useState("form");
  const [problems, setProblems] = useState(/** @type {string[]} */ ([]));
  const [card, setCard] = useState(/** @type {import("./types.js").Card | null} */ (null));
  const [running, setRunning] = useState(0);
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [version, setVersion] = useState(0); // a new number makes a new form
  const isTool = target.kind === "tool";
  const now = inspection.value;
  const isReady = now?.state === "ok";

  // At once: the page may be loaded again before it is painted.
  useLayoutEffect(() => keepDraft(key, value), [key, value]);
  useEffect(() => {
    if (!isTool || !isReady) return undefined;
    const timer = setTimeout(() => {
      check(target.name, value ?? {}).then(setProblems, () => setProblems([]));
    }, 200);
    return () => clearTimeout(timer);
  }, [key, value, isReady]);

  const fill = (/** @type {any} */ given) => {
    setValue(given);
    setVersion(version + 1);
  };

  const [unsent] = useState(() => new Map());
  async function call(checks = true) {
    if (running) return;
    const why = unsentIn(unsent);
    if (why) {
      setCard(null);
      setError(new ApiError(0, "unsent", why));
      return;
    }
    setRunning(Date.now());
    setError(null);
    setCard(null);
    try {
      const [method, params] = requestOf(target, value ?? {});
      setCard(await send(method, params, { checks }));
    } catch (failed) {
      setError(failed instanceof ApiError ? failed : new ApiError(0, "page", String(failed)));
    } finally {
      setRunning(0);
    }
  }
  const outcome = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    if (card || error) outcome.current?.scrollIntoView({ block: "nearest" });
  }, [card, error]);
  const latest = useRef(call);
  latest.current = call;
  useEffect(() => {
    const press = (/** @type {KeyboardEvent} */ event) => {
      if (event.key !== "Enter" || !(event.metaKey || event.ctrlKey) || event.repeat) return;
      event.preventDefault();
      void latest.current();
    };
    document.addEventListener("keydown", press);
    return () => document.removeEventListener("keydown", press);
  }, []);

  const tabs = [
    { id: "form", title: t("view.form") },
    { id: "json", title: "JSON" },
    { id: "schema", title: t("view.schema") },
  ];
  const { definition } = target.item;
  const remarks = (now?.remarks ?? []).filter((each) => each.about === key);
  return html`
    <${Tabs} label=${t("view")} tabs=${tabs} chosen=${view} choose=${setView}>
      <div class="item-body">
        ${definition.description && view !== "schema" && html`<p class="about-item"><${Foreign} text=${String(definition.description)} /></p>`}
        <${Rights} item=${target.item} />
        <${Unsent.Provider} value=${unsent}>
        ${view === "form" && html`<${Guarded} key=${version}><${Form} schema=${schema} value=${value} set=${setValue} problems=${byPlace(problems)} /><//>`}
        ${view === "json" &&
        html`<div class="field whole-json">
          <label for="f-">${t("view.json")}</label>
          <${JsonField} key=${version} path=${[]} required problems=${new Map()} value=${value} set=${setValue} />
          <div id="f--notes"></div>
        </div>`}
        <//>
        ${view === "schema" && html`<${Definition} definition=${definition} remarks=${remarks} />`}
      </div>
    <//>
    <div class="row wrap call-row">
      <button type="button" class="button main deciding" disabled=${!isReady || running > 0} onClick=${() => call()}>
        <${Icon} name="play" />${t(isTool ? "call" : "get")} <kbd aria-hidden="true">${RETURN}</kbd>
      </button>
      ${running > 0 && html`<${Stop} />`}
      ${isTool && html`<${Texts} name=${target.name} value=${value ?? {}} />`}
      <button type="button" class="button plain" onClick=${() => fill(example(schema, schema))}>${t("example")}</button>
      <span class="grow"></span>
      ${isTool && problems.length > 0 && html`<span class="small muted" role="status">${t("problems", { n: problems.length })}</span>`}
      ${isTool && problems.length > 0 && html`<button type="button" class="link small" onClick=${() => call(false)}>${t("call.anyway")}</button>`}
    </div>
    ${isTool && (byPlace(problems).get("") ?? []).length > 0 && html`<ul class="problems">${(byPlace(problems).get("") ?? []).map((each) => html`<li class="problem small">${marked(each)}</li>`)}</ul>`}
    <p class="hidden" role="status">${card ? common(`outcome.${card.state}`) : ""}</p>
    <div class="outcome" ref=${outcome}>
      ${error && html`<${Problem} error=${error} />`}
      ${card && html`<${Result} key=${card.call} card=${card} />`}
    </div>
    <${History} target=${target} fill=${fill} show=${setCard} shown=${card?.call ?? ""} />
  `;
}

/** What a form has at first: what was typed before, else the last call, else what is required. @param {Target} target @param {any} schema */
function first(target, schema) {
  const draft = draftOf(`${target.kind}:${target.name}`);
  if (draft !== null) return draft;
  const last = inspection.value?.history.filter((each) => isOf(target, each)).at(-1);
  return last?.arguments ?? initial(schema, schema) ?? {};
}

/** @param {Target} target @param {import("./types.js").Card} card */
function isOf(target, card) {
  if (target.kind === "tool") return card.method === "tools/call" && card.name === target.name;
  if (target.kind === "prompt") return card.method === "prompts/get" && card.name === target.name;
  if (target.kind === "resource") return card.method === "resources/read" && card.name === target.name;
  const start = String(target.item.definition.uriTemplate).split("{", 1)[0] ?? "";
  return card.method === "resources/read" && card.name.startsWith(start);
}

/** @param {{item: import("./types.js").Item}} props */
function Rights({ item }) {
  if (!item.effect || item.effect === "allow") return null;
  const as = inspection.value?.as;
  const values = { reason: (item.reason ?? "").replaceAll("_", " "), rule: item.rule ?? "", key: as ?? "" };
  return html`<p class="small"><${Chip} tone=${item.effect === "deny" ? "quiet" : "asking"} icon=${item.effect === "deny" ? "lock" : "pause"}>${t(item.effect === "deny" ? "rights.deny" : "rights.ask")}<//> <span class="muted">${t(as ? "rights.key" : "rights.why", values)}</span></p>`;
}

/** @param {{definition: any, remarks: import("./types.js").Remark[]}} props */
function Definition({ definition, remarks }) {
  return html`
    ${remarks.map((each) => html`<div class=${`note ${each.level === "error" ? "tone-failed" : "tone-running"}`}><${Icon} name=${each.level === "error" ? "warning" : "eye"} /><div>${marked(each.text)}</div></div>`)}
    <div class="box definition"><div class="box-body"><${JsonView} value=${definition} open=${6} /></div></div>
  `;
}

function Stop() {
  const running = inspection.value?.running ?? [];
  return html`<button type="button" class="button" disabled=${running.length === 0} onClick=${() => running.map(stop)}><${Icon} name="square" />${t("stop")}</button>
    <${OutcomeChip} state="running" />`;
}

/** @param {{name: string, value: any}} props */
function Texts({ name, value }) {
  const [form, setForm] = useState("");
  const [found, setFound] = useState(/** @type {any} */ (null));
  const forms = /** @type {const} */ (["python", "command", "test"]);
  async function open(/** @type {string} */ chosen) {
    setFound(null);
    setForm(chosen);
    setFound(await texts(name, value));
  }
  return html`
    ${forms.map((each) => html`<button type="button" class="button plain" onClick=${() => open(each)}>${t(`as.${each}`)}</button>`)}
    ${form &&
    html`<${Dialog} title=${t(/** @type {any} */ (`as.${form}`))} close=${() => setForm("")} class="ask wide">
      ${found === null && html`<p class="muted">${t("loading")}</p>`}
      ${found?.reason && html`<p>${t(/** @type {any} */ (`as.${found.reason}`))}</p>`}
      ${found?.[form] && html`<pre class="as-text" tabindex="0">${found[form]}</pre>`}
      <div class="actions">
        ${found?.[form] && html`<${Copy} text=${found[form]} class="button main" />`}
        <button type="button" class="button" onClick=${() => setForm("")}>${t("close")}</button>
      </div>
    <//>`}
  `;
}

/** @param {{target: Target, fill: (value: any) => void, show: (card: any) => void, shown: string}} props */
function History({ target, fill, show, shown }) {
  const all = (inspection.value?.history ?? []).filter((each) => isOf(target, each)).reverse();
  const earlier = all.filter((each) => each.call !== shown);
  if (earlier.length === 0) return null;
  return html`<section class="history" aria-labelledby="history">
    <h2 id="history">${t("history")}</h2>
    <ul>
      ${earlier.map(
        (each) => html`<li>
          <button
            type="button"
            class="history-line"
            onClick=${() => {
              fill(each.arguments);
              show(each.result === null ? null : each);
            }}
          >
            <${OutcomeChip} state=${each.state} />
            <span class="mono grow summary">${marked(summaryOf(each))}</span>
            <span class="muted small">${duration(each.ms)}, ${ago(each.at)}</span>
          </button>
        </li>`,
      )}
    </ul>
  </section>`;
}

/** @param {import("./types.js").Card} card */
function summaryOf(card) {
  return same(card.arguments, {}) ? card.name : stringify(card.arguments).slice(0, 200);
}
