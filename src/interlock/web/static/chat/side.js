// The conversations: search, the list by day, and the servers at the foot.

import { count } from "../shared/format.js";
import { Brand, ThemeChoice } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { Foreign } from "../shared/marks.js";
import { page } from "../shared/page.js";
import { go } from "../shared/route.js";
import { me, signOut } from "../shared/session.js";
import { t as common } from "../shared/text.js";
import { html, useEffect, useRef } from "../shared/view.js";
import { after, current, found, known, list, listed, loadMore, query, search, servers, tools } from "./state.js";
import { t } from "./text.js";

export function Side() {
  const field = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    const focus = (/** @type {KeyboardEvent} */ event) => {
      const inField = /** @type {Element} */ (event.target).closest("input, textarea, select, dialog");
      if (event.key !== "/" || event.metaKey || event.ctrlKey || event.altKey || inField) return;
      if (!field.current?.checkVisibility()) return;
      event.preventDefault();
      field.current.focus();
    };
    addEventListener("keydown", focus);
    return () => removeEventListener("keydown", focus);
  }, []);
  return html`
    <${Brand} href="/" />
    <div class="side-tools">
      <label class="search">
        <${Icon} name="search" />
        <span class="hidden">${t("search")}</span>
        <input
          ref=${field}
          type="search"
          placeholder=${t("search")}
          value=${query.value}
          onInput=${(/** @type {any} */ event) => search(event.currentTarget.value)}
          onKeyDown=${(/** @type {KeyboardEvent} */ event) => {
            if (event.key === "Escape") void search("");
          }}
        />
        <kbd aria-hidden="true">/</kbd>
      </label>
      <button type="button" class="button only" aria-label=${t("new")} title=${t("new")} onClick=${() => go("/")}>
        <${Icon} name="plus" />
      </button>
    </div>
    <nav class="scroll conversations" aria-label=${t("conversations")}>
      <${Conversations} />
    </nav>
    <${Servers} />
    <div class="foot">
      <${Icon} name="person" />
      <span class="grow who">${page.local ? t("who.local") : me.value ? me.value.user.replace(/^user:/, "") : ""}</span>
      <${ThemeChoice} />
      <button
        type="button"
        class="button plain only"
        aria-label=${common("signout")}
        title=${common("signout")}
        onClick=${signOut}
      >
        <${Icon} name="signout" />
      </button>
    </div>
  `;
}

function Conversations() {
  if (found.value !== null) {
    if (found.value.length === 0) return html`<p class="none" role="status">${t("search.none")}</p>`;
    return html`<h2>${t("search.found", { n: found.value.length })}</h2>
      <${Entries} of=${found.value} />`;
  }
  if (listed.value && list.value.length === 0) return html`<p class="none">${t("list.none")}</p>`;
  return html`
    ${byDay(list.value).map(([name, entries]) => html`<h2>${name}</h2><${Entries} of=${entries} />`)}
    ${after.value && html`<button type="button" class="link more" onClick=${loadMore}>${t("list.more")}</button>`}
  `;
}

/** @param {{of: import("./state.js").Listed[]}} props */
function Entries({ of }) {
  const here = current.value.id.value;
  return html`<ul>
    ${of.map(
      (each) => html`<li key=${each.id}>
        <a
          href=${`/c/${each.id}${each.hit === undefined ? "" : `?at=${each.hit}`}`}
          aria-current=${each.id === here ? "page" : null}
          title=${each.title}
        >
          <span class="title"><${Foreign} text=${each.title || t("untitled")} /></span>
          ${each.state === "waiting" && html`<span class="dot waits"><span class="hidden">${t("waits")}</span></span>`}
          ${each.state === "running" && html`<span class="dot runs"><span class="hidden">${t("runs")}</span></span>`}
        </a>
      </li>`,
    )}
  </ul>`;
}

/**
 * @param {import("./state.js").Listed[]} entries
 * @returns {[string, import("./state.js").Listed[]][]}
 */
function byDay(entries) {
  /** @type {Map<string, import("./state.js").Listed[]>} */
  const groups = new Map();
  const midnight = new Date().setHours(0, 0, 0, 0);
  for (const each of entries) {
    const days = Math.ceil((midnight - new Date(each.updated).getTime()) / 86_400_000);
    const name = t(
      days <= 0 ? "day.today" : days === 1 ? "day.yesterday" : days <= 7 ? "day.week" : days <= 31 ? "day.month" : "day.older",
    );
    groups.set(name, [...(groups.get(name) ?? []), each]);
  }
  return [...groups];
}

function Servers() {
  if (!known.value) return html`<div class="foot"></div>`;
  const down = servers.value.filter((each) => each.state !== "ok" && each.state !== "starting");
  const numbers = t("servers.count", { n: servers.value.length });
  return html`<div class="foot">
    <${Icon} name="server" />
    <span class="grow">${page.inspect ? html`<a href="/inspect">${numbers}</a>` : numbers}, ${t("tools.count", { n: tools.value.length })}</span>
    ${down.length > 0 &&
    html`<span class="chip tone-failed" title=${down.map((each) => `${each.name}: ${each.reason}`).join("\n")}>
      <${Icon} name="warning" />${t("servers.down", { down: count(down.length) })}
    </span>`}
  </div>`;
}
