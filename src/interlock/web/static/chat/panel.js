// Beside the conversation: its servers with their state and why, and what it has used.

import { Icon } from "../shared/icons.js";
import { Foreign } from "../shared/marks.js";
import { Chip } from "../shared/outcomes.js";
import { page } from "../shared/page.js";
import { html, useEffect } from "../shared/view.js";
import { ServerLog } from "./call.js";
import { checkServers, current, known, servers } from "./state.js";
import { t } from "./text.js";

/** @type {Record<string, {tone: import("../shared/outcomes.js").Tone, icon: import("../shared/icons.js").IconName}>} */
const STATES = {
  ok: { tone: "ran", icon: "check" },
  starting: { tone: "running", icon: "turning" },
};

export function Panel() {
  useEffect(() => void checkServers(), []);
  const conversation = current.value;
  const { answers, calls } = conversation.done.value;
  const last = conversation.last.value;
  const waiting = [...conversation.cards.values()].filter((each) => each.value.approval);
  return html`<div class="panel-body">
    <section>
      <h2>${t("panel.servers")}</h2>
      ${known.value && servers.value.length === 0 && html`<p class="muted">${t("panel.none")}</p>`}
      <ul class="servers">
        ${servers.value.map((each) => {
          const { tone, icon } = STATES[each.state] ?? { tone: "failed", icon: "cross" };
          return html`<li>
            <div class="row">
              <${Chip} tone=${tone} icon=${icon}>${t(`server.${word(each.state)}`)}<//>
              <span class="mono grow">${each.name}</span>
              <span class="muted small">${t("tools.count", { n: each.tools })}</span>
            </div>
            ${each.state !== "ok" && each.reason && html`<p class="small"><${Foreign} text=${each.reason} /></p>`}
            ${each.state !== "ok" && page.local && html`<details class="small"><summary>${t("server.log")}</summary><${ServerLog} server=${each.name} /></details>`}
          </li>`;
        })}
      </ul>
    </section>
    ${waiting.length > 0 &&
    html`<section>
      <h2>${t("panel.todo")}</h2>
      <ol class="todo">
        ${waiting.map((each) => html`<li><a href=${`#call-${each.value.id}`}>${each.value.tool}</a> <strong class="waits-word">${t("panel.waits")}</strong></li>`)}
      </ol>
    </section>`}
    <section>
      <h2>${t("panel.used")}</h2>
      <dl class="facts mono">
        ${conversation.used.value.map((each) => html`<dt>${t("panel.model", { model: each.model })}</dt><dd>${tokens(each.usage, each.cost)}</dd>`)}
        ${last && html`<dt>${t("panel.last")}</dt><dd>${tokens(last, last.cost)}</dd>`}
        <dt>${t("panel.turns")}</dt>
        <dd>${answers}</dd>
        <dt>${t("panel.calls")}</dt>
        <dd>${calls}</dd>
      </dl>
      <p class="muted small"><${Icon} name="clock" /> ${t("panel.since")}</p>
    </section>
  </div>`;
}

/** @param {import("./view.js").Usage} usage @param {number | null} [cost] */
function tokens({ input_tokens: input, output_tokens: output }, cost) {
  const price = (cost ?? 0).toFixed(4);
  return typeof cost === "number" ? t("panel.cost", { input, output, price }) : t("panel.tokens", { input, output });
}

/** @param {string} state */
function word(state) {
  return state === "ok" || state === "starting" ? state : "down";
}
