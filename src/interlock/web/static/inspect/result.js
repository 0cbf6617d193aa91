// How a call ended, with its result: structured, as text, and checked against the output schema.

import { ApiError } from "../shared/api.js";
import { CallCard } from "../shared/card.js";
import { Long, Picture } from "../shared/content.js";
import { size } from "../shared/format.js";
import { Icon } from "../shared/icons.js";
import { CutParts, JsonView, More } from "../shared/json.js";
import { Problem } from "../shared/load.js";
import { Foreign, marked } from "../shared/marks.js";
import { page } from "../shared/page.js";
import { Tabs } from "../shared/tabs.js";
import { html, useState } from "../shared/view.js";
import { later } from "./later.js";
import { withMember } from "./model.js";
import { chosen, inspection, resultPart } from "./state.js";
import { t } from "./text.js";

const App = later(() => import("./app.js"));

/** @param {{card: import("./types.js").Card}} props */
export function Result({ card }) {
  const summary = card.size === undefined ? "" : size(card.size);
  const head = { id: card.call, state: card.state, address: card.address, ms: card.ms, summary };
  return html`<${CallCard} key=${card.call} call=${head} open=${true}><${Body} card=${card} /><//>`;
}

/** @param {{card: import("./types.js").Card}} props */
function Body({ card }) {
  const [{ result, cuts }, setHeld] = useState({ result: card.result, cuts: card.cuts ?? {} });
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const more = async (/** @type {string} */ pointer) => {
    const offset = String(cuts[pointer]?.[0] ?? 0);
    try {
      const found = await resultPart(card.call, { pointer, offset });
      setHeld((now) => {
        const { [pointer]: _, ...others } = now.cuts;
        return { result: joined(now.result, pointer.split("/").slice(1), found.result), cuts: { ...others, ...found.cuts } };
      });
    } catch (failed) {
      if (!(failed instanceof ApiError)) throw failed;
      setError(failed);
    }
  };
  const blocks = result?.content ?? result?.contents ?? result?.messages;
  const hasStructured = result && "structuredContent" in result;
  const [form, choose] = useState(hasApp(card) ? "app" : hasStructured ? "structured" : blocks ? "text" : "json");
  const passed = card.check?.length === 0;
  const tabs = [
    hasApp(card) && { id: "app", title: t("result.app") },
    hasStructured && { id: "structured", title: t("result.structured") },
    blocks && { id: "text", title: t("result.text") },
    result && { id: "json", title: "JSON" },
    result && card.method === "tools/call" && {
      id: "check",
      title: html`${t("result.check")}${card.check && html` <${Icon} name=${passed ? "check" : "warning"} label=${t(passed ? "check.passed" : "check.failed")} />`}`,
    },
  ].filter(Boolean);
  return html`
    ${card.text && html`<${Why} card=${card} />`}
    ${error && html`<${Problem} error=${error} />`}
    ${result &&
    html`<${CutParts.Provider} value=${{ cuts, more }}><${Tabs} label=${card.name} tabs=${tabs} chosen=${form} choose=${choose}>
      <div class="tab-body">
        ${form === "app" && html`<${App} card=${card} />`}
        ${form === "structured" && html`<${JsonView} value=${result.structuredContent} open=${3} path="/structuredContent" />`}
        ${form === "text" && html`<${Blocks} blocks=${blocks} path=${`/${["content", "contents", "messages"].find((each) => result[each])}`} />`}
        ${form === "json" && html`<${JsonView} value=${result} open=${3} />`}
        ${form === "check" && html`<${Check} check=${card.check ?? null} />`}
      </div>
    <//><//>`}
    ${card.entries[1] >= card.entries[0] &&
    html`<p class="small">
      <button type="button" class="link" onClick=${() => (chosen.value = card.entries[0])}>${t("result.wire")}</button>
    </p>`}
  `;
}

/** @param {import("./types.js").Card} card */
function hasApp(card) {
  if (card.method !== "tools/call" || card.state !== "ran" || !card.result) return false;
  const tool = inspection.value?.tools.find((each) => each.definition.name === card.name);
  const meta = tool?.definition._meta;
  return typeof (meta?.ui?.resourceUri ?? meta?.["ui/resourceUri"]) === "string";
}

/** @param {{card: import("./types.js").Card}} props */
function Why({ card }) {
  const tone = card.state === "failed" ? "tone-failed" : card.state === "held" ? "tone-held" : card.state === "asking" ? "tone-asking" : "";
  const path = `/gateway/tools/${encodeURIComponent(card.address)}`;
  return html`<div class=${`note ${tone}`}>
    <${Icon} name=${card.state === "failed" ? "warning" : "lock"} />
    <div class="grow">
      <${Foreign} text=${card.text ?? ""} />
      ${page.board && (card.state === "refused" || card.state === "held") && html` <a href=${path}>${t("result.explain")}</a>`}
      ${page.board && card.state === "asking" && html` <a href="/gateway/approvals">${t("result.approvals")}</a>`}
    </div>
  </div>`;
}

/** @param {{check: string[] | null}} props */
function Check({ check }) {
  if (check === null) return html`<p class="muted small">${t("check.none")}</p>`;
  if (check.length === 0) return html`<p class="small">${t("check.passed")}</p>`;
  return html`<ul class="problems">${check.map((each) => html`<li class="problem">${marked(each)}</li>`)}</ul>`;
}

/**
 * Return a value with a part added at a place.
 * @param {any} value
 * @param {string[]} steps
 * @param {any} part
 * @returns {any}
 */
function joined(value, [first, ...rest], part) {
  if (first !== undefined) {
    const name = first.replaceAll("~1", "/").replaceAll("~0", "~");
    if (!Array.isArray(value)) return withMember(value, name, joined(value[name], rest, part));
    return value.map((each, at) => (at === Number(name) ? joined(each, rest, part) : each));
  }
  if (typeof value === "string") return value + part;
  return Array.isArray(value) ? [...value, ...part] : { ...value, ...part };
}

/** @param {{blocks: any[], path: string}} props */
function Blocks({ blocks, path }) {
  if (!Array.isArray(blocks)) return html`<${JsonView} value=${blocks} path=${path} />`;
  if (blocks.length === 0) return html`<p class="muted small">${t("result.none")}</p>`;
  return html`${blocks.map((each, at) => html`<${Block} block=${each} path=${`${path}/${at}`} />`)}<${More} path=${path} />`;
}

/** @param {{block: any, path: string}} props */
function Block({ block, path }) {
  const inner = block?.role ? block.content : (block?.resource ?? block);
  const inside = block?.role ? "/content" : block?.resource ? "/resource" : "";
  const text = typeof inner === "string" ? inner : inner?.text;
  const data = inner?.type === "image" ? inner.data : inner?.blob;
  return html`
    ${block?.role && html`<p class="muted small">${marked(String(block.role))}</p>`}
    ${inner?.uri && html`<p class="mono small">${marked(String(inner.uri))}</p>`}
    ${typeof text === "string"
      ? html`<${Long} text=${text} /><${More} path=${path + inside + (typeof inner === "string" ? "" : "/text")} />`
      : typeof data === "string"
        ? html`<${Picture} data=${data} />`
        : inner?.uri === undefined && html`<${JsonView} value=${block} path=${path} />`}
  `;
}
