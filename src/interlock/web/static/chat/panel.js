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
  const { input, output, rounds, calls } = conversation.usage.value;
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
        <dt>${t("panel.turns")}</dt>
        <dd>${rounds}</dd>
        <dt>${t("panel.calls")}</dt>
        <dd>${calls}</dd>
        <dt>${t("panel.tokens")}</dt>
        <dd>${t("panel.tokens.of", { input, output })}</dd>
      </dl>
      <p class="muted small"><${Icon} name="clock" /> ${t("panel.since")}</p>
    </section>
  </div>`;
}

/** @param {string} state */
function word(state) {
  return state === "ok" || state === "starting" ? state : "down";
}
