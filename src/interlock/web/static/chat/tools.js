// Which tools a conversation may use: a list by server that can be searched, with a switch for each.

import { Dialog } from "../shared/dialog.js";
import { Address, Foreign, marked } from "../shared/marks.js";
import { Chip } from "../shared/outcomes.js";
import { html, useId, useState } from "../shared/view.js";
import { attempt, chooseTool, isOn, saveTools, serverOf, tools } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./state.js").Tool} Tool */
/** @typedef {import("./state.js").ToolStates} States */

/**
 * Return the states after some tools of one server were switched.
 * @param {States} states
 * @param {string} server
 * @param {string[]} all The tools of the server.
 * @param {string[]} switched
 * @param {boolean} on
 */
export function switchedTo(states, server, all, switched, on) {
  const { [server]: ofServer, ...made } = states;
  if (ofServer !== undefined && (ofServer !== "off" || !on)) made[server] = ofServer;
  for (const each of all) {
    const isOff = switched.includes(each) ? !on : !isOn(states, each);
    if (isOff) made[each] = "off";
    else if (made[each] === "off") delete made[each];
  }
  if (all.every((each) => made[each] === "off")) {
    for (const each of all) delete made[each];
    made[server] = "off"; // tools that it gets later are off as well
  }
  return made;
}

/** @param {{conversation: import("./view.js").Conversation, close: () => void}} props */
export function Tools({ conversation, close }) {
  const id = useId();
  const [query, setQuery] = useState("");
  const states = conversation.tools.value;
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  const found = tools.value.filter((each) => {
    const text = `${each.address} ${each.title} ${each.description}`.toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const servers = [...new Set(found.map((each) => serverOf(each.address)))];
  const cost = tools.value.filter((each) => isOn(states, each.address)).reduce((sum, each) => sum + each.tokens, 0);
  return html`<${Dialog} title=${t("tools.title")} close=${close} class="ask wide">
    <p class="muted small">${t("tools.cost", { n: cost })}</p>
    ${tools.value.length === 0
      ? html`<p>${t("tools.none")}</p>`
      : html`<div class="field">
          <label for=${id}>${t("tools.search")}</label>
          <input id=${id} class="input" type="search" autocomplete="off" value=${query} onInput=${(/** @type {any} */ event) => setQuery(event.currentTarget.value)} />
        </div>
        <p class="hidden" role="status">${query && t("tools.found", { n: found.length })}</p>`}
    <div class="tools-list" tabindex="0" role="group" aria-label=${t("tools.title")}>
      ${query && found.length === 0 && html`<p class="muted">${t("tools.no.match", { query })}</p>`}
      ${servers.map((server) => html`<${OfServer} key=${server} server=${server} found=${found.filter((each) => serverOf(each.address) === server)} conversation=${conversation} />`)}
    </div>
    <div class="actions"><button type="button" class="button main" onClick=${close}>${t("done")}</button></div>
  <//>`;
}

/** @param {{server: string, found: Tool[], conversation: import("./view.js").Conversation}} props */
function OfServer({ server, found, conversation }) {
  const states = conversation.tools.value;
  const all = tools.value.map((each) => each.address).filter((each) => serverOf(each) === server);
  const on = all.filter((each) => isOn(states, each)).length;
  const turn = (/** @type {string[]} */ which, /** @type {boolean} */ to) =>
    attempt(() => saveTools(conversation, switchedTo(states, server, all, which, to)));
  return html`<section>
    <div class="row tools-server">
      <h3 class="mono">${marked(server)}</h3><span class="muted small grow">${t("tools.on.of", { on, n: all.length })}</span>
      <${Switch} label=${t("tools.all", { server })} on=${on > 0} turn=${(/** @type {boolean} */ to) => turn(all, to)} />
    </div>
    <ul>
      ${found.map((each) => html`<${One} key=${each.address} tool=${each} states=${states} turn=${(/** @type {boolean} */ to) => turn([each.address], to)} />`)}
    </ul>
  </section>`;
}

/** @param {{tool: Tool, states: States, turn: (on: boolean) => void}} props */
function One({ tool, states, turn }) {
  const { address } = tool;
  const on = isOn(states, address);
  const state = states[address] ?? states[serverOf(address)] ?? "";
  return html`<li class="row tool-line" data-tool=${address}>
    <details class="grow">
      <summary>
        <${Address} address=${address} />
        <${Chip}>${t(tool.readOnly ? "tools.reads" : "tools.writes")}<//>
        ${on && state && html`<${Chip} tone="asking">${t(/** @type {any} */ (`tools.marked.${state}`))}<//>`}
        <span class="about muted small"><${Foreign} text=${tool.description} /></span>
      </summary>
      <label class="row small asks">
        <span>${t("tools.asks")}</span>
        <select aria-label=${t("tools.state", { name: address })} disabled=${!on} value=${on ? state : ""} onChange=${(/** @type {any} */ event) => chooseTool(address, event.currentTarget.value)}>
          <option value="">${t("tools.default")}</option>
          <option value="ask">${t("tools.ask")}</option>
          <option value="on">${t("tools.on")}</option>
        </select>
      </label>
    </details>
    <${Switch} label=${t("tools.use", { name: address })} on=${on} turn=${turn} />
  </li>`;
}

/** @param {{label: string, on: boolean, turn: (on: boolean) => void}} props */
function Switch({ label, on, turn }) {
  return html`<button type="button" class="switch" role="switch" aria-label=${label} aria-checked=${String(on)} onClick=${() => turn(!on)}>
    <span class="track"></span>
  </button>`;
}
