// Before the first message: what is there, and four things to try with it.

import { Address, Foreign } from "../shared/marks.js";
import { page } from "../shared/page.js";
import { html } from "../shared/view.js";
import { fill } from "./composer.js";
import { known, servers, tools } from "./state.js";
import { t } from "./text.js";

const SHOWN = 4;

export function Empty() {
  const all = tools.value;
  const ready = new Set(all.map((each) => each.address.split(":")[0]));
  return html`<div class="welcome">
    <h2>${t("empty.title")}</h2>
    <p class="muted">${sentence(all.length, ready.size)}</p>
    <ul class="suggestions">
      ${suggested(all).map(
        (each) => html`<li>
          <button type="button" onClick=${() => fill(t("empty.ask", { what: asked(each) }))}>
            <${Address} address=${each.address} />
            <span class="muted"><${Foreign} text=${asked(each)} /></span>
          </button>
        </li>`,
      )}
    </ul>
  </div>`;
}

/** @param {number} n @param {number} from */
function sentence(n, from) {
  if (!known.value) return "";
  if (n > 0) return `${t("empty.ready", { n, from: t("servers.count", { n: from }) })} ${t(page.builtIn ? "empty.rules" : "empty.policy")}`;
  const down = servers.value.find((each) => each.state !== "ok");
  return down ? t("empty.down", { name: down.name, reason: down.reason || down.state }) : t("empty.none");
}

/**
 * Return a tool of each server, those that only read first.
 * @param {import("./state.js").Tool[]} all
 */
function suggested(all) {
  const sorted = [...all].sort((one, other) => Number(other.readOnly) - Number(one.readOnly));
  /** @type {Map<string, number>} */
  const taken = new Map();
  const ranked = sorted.map((each) => {
    const server = each.address.split(":")[0] ?? "";
    taken.set(server, (taken.get(server) ?? 0) + 1);
    return { each, rank: taken.get(server) ?? 0 };
  });
  return ranked.sort((one, other) => one.rank - other.rank).slice(0, SHOWN).map(({ each }) => each);
}

/** @param {import("./state.js").Tool} tool */
function asked(tool) {
  const first = (tool.description || tool.title).split(/(?<=[.!?])\s|\n/)[0] ?? "";
  return first.length > 110 ? `${first.slice(0, 109)}…` : first;
}
