// The side of the board: its screens, with counts of what waits.

import { html, signal, useEffect } from "../shared/view.js";
import { count } from "../shared/format.js";
import { Brand, Frame, Head, ThemeChoice } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { page } from "../shared/page.js";
import { place } from "../shared/route.js";
import { may, me, role, signOut } from "../shared/session.js";
import { t as common } from "../shared/text.js";
import { ApiError, get } from "../shared/api.js";
import { API } from "./parts.js";
import { t } from "./text.js";

/** What waits, by screen, as the overview said last. */
export const waiting = signal(/** @type {{servers: number, approvals: number, pins: number}} */ ({
  servers: 0,
  approvals: 0,
  pins: 0,
}));

const SCREENS = /** @type {const} */ ([
  ["overview", "/gateway", "overview", null],
  ["servers", "/gateway/servers", "server", "failed"],
  ["tools", "/gateway/tools", "tool", null],
  ["keys", "/gateway/keys", "key", null],
  ["clients", "/gateway/clients", "person", null],
  ["approvals", "/gateway/approvals", "pause", "asking"],
  ["audit", "/gateway/audit", "list", null],
  ["pins", "/gateway/pins", "pin", "held"],
  ["limits", "/gateway/limits", "gauge", null],
]);

/**
 * Return how much waits, from an overview.
 * @param {import("./parts.js").Waits} overview
 */
export function waitingIn({ needs, waiting: { approvals, definitions } }) {
  return { servers: needs.servers.length, approvals, pins: definitions };
}

/** Find out what waits, for the counts beside the screens. */
export async function countWaiting() {
  try {
    waiting.value = waitingIn(await get(`${API}/overview?range=1h`));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // the screen itself says what is wrong
  }
}

export function Side() {
  const now = place.value.path;
  const counts = /** @type {Record<string, number>} */ (waiting.value);
  return html`
    <${Brand} href="/gateway" place=${t("gateway")} />
    <div class="scroll">
      ${may("admin:read") &&
      html`<nav class="nav" aria-label=${t("nav")}>
        ${SCREENS.map(([name, path, icon, tone]) => {
          const isHere = path === "/gateway" ? now === path : now.startsWith(path);
          return html`<a href=${path} aria-current=${isHere ? "page" : null}>
            <${Icon} name=${icon} />${t(`nav.${name}`)}
            ${counts[name] ? html`<span class=${`count tone-${tone}`}>${count(counts[name])}</span>` : null}
          </a>`;
        })}
      </nav>`}
      ${(page.chat || may("admin:write")) &&
      html`<h2 id="work">${t("work")}</h2>
        <nav class="nav" aria-labelledby="work">
          ${page.chat && html`<a href="/"><${Icon} name="chat" />${t("nav.chat")}</a>`}
          ${may("admin:write") && html`<a href="/inspect"><${Icon} name="wire" />${t("nav.inspect")}</a>`}
        </nav>`}
    </div>
    <div class="foot theme"><${ThemeChoice} bell /></div>
    <div class="foot">
      <${Icon} name="person" />
      <span class="grow who">${me.value ? me.value.user : ""}</span>
      <span class="muted">${common(`role.${role()}`)}</span>
      <button type="button" class="button plain only" aria-label=${common("signout")} title=${common("signout")} onClick=${signOut}>
        <${Icon} name="signout" />
      </button>
    </div>
  `;
}

/**
 * A screen of the board.
 * @param {{title: string, about?: any, tools?: any, panel?: any, closePanel?: () => void, children?: any}} props
 */
export function Screen({ title, about, tools, panel, closePanel, children }) {
  useEffect(() => {
    document.title = t("title", { screen: title });
  }, [title]);
  const side = html`<${Side} />`;
  return html`<${Frame} side=${side} panel=${panel} closePanel=${closePanel}>
    <${Head} title=${title} about=${about} side=${side}>${tools}<//>
    <div class="body">${children}</div>
  <//>`;
}

/** What is not there, or not for this person. */
export function Absent() {
  return html`<${Screen} title=${common("absent")}>
    <div class="empty">
      <strong>${common("absent")}</strong>
      <p>${common("absent.why")}</p>
      <p>
        ${may("admin:read")
          ? html`<a href="/gateway">${common("absent.board")}</a>`
          : page.chat
            ? html`<a href="/">${common("absent.chat")}</a>`
            : html`<button type="button" class="link" onClick=${signOut}>${t("absent.other")}</button>`}
      </p>
    </div>
  <//>`;
}
