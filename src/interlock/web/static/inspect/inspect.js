// The inspector: who is signed in, the server, and the item that the address names.

import { get } from "../shared/api.js";
import { Frame, Guarded, Head, useMedia } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { JsonView } from "../shared/json.js";
import { Problem } from "../shared/load.js";
import { Foreign, marked } from "../shared/marks.js";
import { Chip } from "../shared/outcomes.js";
import { page } from "../shared/page.js";
import { follow, match, place } from "../shared/route.js";
import { begin as signIn, Login, may, me } from "../shared/session.js";
import { html, mount, useEffect, useState } from "../shared/view.js";
import { Asks } from "./asks.js";
import { Item } from "./item.js";
import { later } from "./later.js";
import { Side, eras } from "./side.js";
import { begin, inspection, isOffline, problem, restart } from "./state.js";
import { t } from "./text.js";
import { Wire, edited } from "./wire.js";

const ME = "/me";
const Start = later(() => import("./start.js"));
const Editor = later(() => import("./editor.js"));

function Inspector() {
  const { path, query } = place.value;
  const values = new URLSearchParams(query);
  const found = match("/inspect/:server", path) ?? match("/inspect/:server/:tool", path) ?? {};
  const as = values.get("as") ?? "";
  const isSignedIn = Boolean(me.value) && (page.local || may("admin:write"));
  useEffect(() => {
    if (!isSignedIn) return;
    const now = inspection.value;
    if (found.server && (found.server !== now?.server || as !== now.as)) void begin({ server: found.server, ...(as && { as }) });
  }, [isSignedIn, found.server, as]);
  useEffect(() => {
    if (isSignedIn && eras.value.length < 3) void get("/api/inspect").then((each) => (eras.value = each.eras), () => {});
  }, [isSignedIn]);
  if (me.value === null) return null;
  if (me.value === false) return html`<${Login} path=${ME} />`;
  if (!isSignedIn) return html`<${Denied} />`;
  if (!found.server) {
    return html`<${Screen} title=${t("start")}><${Start} /><//>`;
  }
  return html`<${Server} tool=${found.tool} values=${values} />`;
}

function Denied() {
  return html`<main class="login"><div class="box"><h1>${t("denied.title")}</h1><p>${t("denied.why")}</p></div></main>`;
}

/** @param {{title: any, name?: string, about?: any, tools?: any, panel?: any, closePanel?: () => void, children?: any}} props */
function Screen({ title, name, about, tools, panel, closePanel, children }) {
  useEffect(() => {
    document.title = `${name ?? title} – ${t("title")}`;
  }, [name, title]);
  const side = html`<${Side} />`;
  return html`<${Frame} side=${side} panel=${panel} closePanel=${closePanel}>
    ${isOffline.value && html`<div class="bar" role="status"><${Icon} name="offline" />${t("offline")}</div>`}
    <${Head} title=${title} about=${about} side=${side}>${tools}<//>
    <div class="body">${children}</div>
  <//>`;
}

/** @param {{tool: string | undefined, values: URLSearchParams}} props */
function Server({ tool, values }) {
  const isWide = useMedia("(min-width: 1100px)");
  const [isOpen, setOpen] = useState(false);
  const now = inspection.value;
  const target = now && targetOf(now, tool, values);
  const panel = isWide || isOpen ? html`<${Wire} />` : null;
  const wireButton = !isWide && html`<button type="button" class="button" onClick=${() => setOpen(true)}><${Icon} name="wire" />${t("wire")}</button>`;
  const name = target?.name ?? tool ?? now?.server ?? "";
  const annotations = target?.item.definition.annotations ?? {};
  const about = target?.kind === "tool" && html`<${Marks} annotations=${annotations} />`;
  return html`<${Screen} title=${html`<span class="mono">${marked(name)}</span>`} name=${name} about=${about} tools=${wireButton} panel=${panel} closePanel=${() => setOpen(false)}>
    ${problem.value && html`<${Problem} error=${problem.value} />`}
    ${now && html`<${Trouble} now=${now} />`}
    <${Asks} />
    ${now && target && html`<${Guarded} key=${`${target.kind}:${target.name}`}><${Item} target=${target} /><//>`}
    ${now && !target && html`<${About} now=${now} missing=${tool} />`}
    ${edited.value && html`<${Editor} />`}
  <//>`;
}

/** @param {import("./types.js").Inspection} now @param {string | undefined} tool @param {URLSearchParams} values */
function targetOf(now, tool, values) {
  const kinds = /** @type {const} */ ([
    ["resource", "resources", "uri"],
    ["template", "resourceTemplates", "uriTemplate"],
    ["prompt", "prompts", "name"],
  ]);
  if (tool !== undefined) {
    const item = now.tools.find((each) => each.definition.name === tool);
    return item ? { kind: /** @type {const} */ ("tool"), name: tool, item } : null;
  }
  for (const [kind, member, key] of kinds) {
    const name = values.get(kind);
    const item = name === null ? undefined : now[member].find((each) => each.definition[key] === name);
    if (item && name !== null) return { kind, name, item };
  }
  return null;
}

/** @param {{annotations: any}} props */
function Marks({ annotations }) {
  const isReading = annotations.readOnlyHint === true;
  return html`<${Chip}>${t(isReading ? "marks.reads" : "marks.writes")}<//>
    ${!isReading && annotations.destructiveHint !== false && annotations.destructiveHint !== undefined && html` <${Chip}>${t("marks.destructive")}<//>`}
    ${annotations.openWorldHint === true && html` <${Chip}>${t("marks.open")}<//>`}`;
}

/** What is wrong with the server, and what to do. @param {{now: import("./types.js").Inspection}} props */
function Trouble({ now }) {
  if (now.state !== "failed" && now.state !== "down") return null;
  return html`<div class="note tone-failed" role="alert">
    <${Icon} name="warning" />
    <div class="grow"><${Foreign} text=${now.reason} /></div>
    <button type="button" class="link" onClick=${() => restart()}>${t("restart")}</button>
  </div>`;
}

/** What is known of a server. @param {{now: import("./types.js").Inspection, missing: string | undefined}} props */
function About({ now, missing }) {
  return html`<div class="stack">
    ${missing !== undefined && now.state === "ok" && html`<p>${t("tool.missing", { tool: missing })}</p>`}
    ${now.state === "starting" && html`<p class="muted" role="status">${t("state.starting")}</p>`}
    ${now.state === "ok" &&
    html`<dl class="facts">
        <dt>${t("about.server")}</dt><dd>${marked(now.serverInfo ?? "")}</dd>
        <dt>${t("about.revision")}</dt><dd>${now.revision}</dd>
        ${now.as && html`<dt>${t("about.as")}</dt><dd class="mono">${now.as}</dd>`}
      </dl>
      ${now.instructions && html`<section><h2>${t("about.instructions")}</h2><pre class="result-text" tabindex="0"><${Foreign} text=${now.instructions} /></pre></section>`}
      <section><h2>${t("about.capabilities")}</h2><${JsonView} value=${now.capabilities ?? {}} open=${4} /></section>
      <p class="muted">${t("about.choose")}</p>`}
    ${now.problems.length > 0 && html`<section><h2>${t("about.problems")}</h2><ul class="problems">${now.problems.map((each) => html`<li class="small">${marked(each)}</li>`)}</ul></section>`}
  </div>`;
}

follow((path) => path === "/inspect" || path.startsWith("/inspect/"));
signIn(ME).then(
  () => mount(html`<${Inspector} />`),
  (error) => mount(html`<main class="login"><${Problem} error=${error} again=${() => location.reload()} /></main>`),
);
