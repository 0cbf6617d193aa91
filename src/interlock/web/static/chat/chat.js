// The chat: who is signed in, the frame, and the conversation that the address names.

import { effect, html, mount, signal, untracked, useEffect } from "../shared/view.js";
import { Dialog } from "../shared/dialog.js";
import { Frame, Guarded, Head, useMedia } from "../shared/frame.js";
import { Icon } from "../shared/icons.js";
import { Problem } from "../shared/load.js";
import { page } from "../shared/page.js";
import { follow, place } from "../shared/route.js";
import { begin, ended, Login, me } from "../shared/session.js";
import { Composer } from "./composer.js";
import { Menu } from "./menu.js";
import { Side } from "./side.js";
import { begin as beginChat, connection, current, problem, show } from "./state.js";
import { t } from "./text.js";
import { Transcript } from "./transcript.js";

const ME = "/me";
const takes = (/** @type {string} */ path) => path === "/" || /^\/(c|calls)\/[^/]+$/.test(path);

/** What the first screen does without; null until it is loaded. */
const later = signal(/** @type {typeof import("./later.js") | null} */ (null));
const isIncomplete = signal(false);

/** Load the rest of the page in one round, as the document names its modules. */
function loadLater() {
  for (const href of page.later ?? []) {
    document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href }));
  }
  import("./later.js").then(
    (loaded) => (later.value = loaded),
    () => (isIncomplete.value = true),
  );
}

let wasLost = false;
/** Loads the page again when a lost connection is back: a browser tries no module twice. */
effect(() => {
  const { state } = connection.line.value;
  if (state === "open" && wasLost && untracked(() => isIncomplete.value)) location.reload();
  wasLost = state === "lost";
});

/** Whether the panel is open; the last choice is kept. */
const panel = signal(localStorage.getItem("panel") !== "closed" && innerWidth >= 1360);

function Chat() {
  const started = me.value !== null && me.value !== false;
  const { path } = place.value;
  useEffect(() => {
    if (started) void beginChat();
  }, [started]);
  if (me.value === null) return null;
  if (me.value === false) return html`<${Login} path=${ME} />`;
  const side = html`<${Side} />`;
  if (path.startsWith("/calls/")) {
    const One = later.value?.OneCall;
    return html`<${Frame} side=${side}>${One && html`<${One} id=${path.slice(7)} side=${side} />`}<//>`;
  }
  return html`<${Talk} side=${side} />`;
}

/** @param {{side: any}} props */
function Talk({ side }) {
  const conversation = current.value;
  const title = conversation.title.value || t("new");
  const isWide = useMedia("(min-width: 1100px)");
  useEffect(() => {
    document.title = `${title} – interlock`;
  }, [title]);
  useEffect(() => {
    if (!isWide) panel.value = false;
  }, [isWide]);
  /** @param {boolean} open */
  function setPanel(open) {
    panel.value = open;
    if (isWide) localStorage.setItem("panel", open ? "open" : "closed");
  }
  const Panel = later.value?.Panel;
  const content = Panel ? html`<${Panel} />` : html`<div></div>`; // its place is there from the start
  const shown = panel.value ? content : null;
  return html`<${Frame} side=${side} panel=${shown} closePanel=${() => setPanel(false)}>
    <${LineBar} />
    <${Head} title=${title} side=${side}>
      <${Menu} panel=${panel.value} setPanel=${setPanel} />
    <//>
    <${Guarded} key=${path()}>
      <${Transcript} conversation=${conversation} later=${later.value} />
      <${Composer} conversation=${conversation} later=${later.value} />
    <//>
    ${problem.value &&
    html`<${Dialog} title=${t("refused.title")} close=${() => (problem.value = "")}>
      <p>${problem.value}</p>
      <div class="actions">
        <button class="button" type="button" onClick=${() => (problem.value = "")}>${t("ok")}</button>
      </div>
    <//>`}
  <//>`;
}

const path = () => current.value.id.value ?? "new";

/** Shows another conversation before anything more can be typed. */
effect(() => {
  if (me.value && !place.value.path.startsWith("/calls/")) untracked(show);
});

const now = signal(Date.now());
/** Counts the seconds only while the line is lost. */
effect(() => {
  if (connection.line.value.state !== "lost") return undefined;
  now.value = Date.now();
  const timer = setInterval(() => (now.value = Date.now()), 1000);
  return () => clearInterval(timer);
});

/** The bar that the page shows while it has no connection. */
function LineBar() {
  const line = connection.line.value;
  if (line.state === "ended") ended.value = true;
  if (line.state === "ended" || (isIncomplete.value && line.state === "open")) {
    return html`<div class="bar" role="status">
      <${Icon} name="lock" /><span>${t(line.state === "ended" ? "line.ended" : "line.incomplete")}</span>
      <button class="button" type="button" onClick=${() => location.reload()}>${t("reload")}</button>
    </div>`;
  }
  if (line.state !== "lost") return null;
  const since = Math.max(0, Math.round((now.value - line.since) / 1000));
  const next = Math.max(0, Math.round((line.next - now.value) / 1000));
  return html`<div class="bar" data-line="lost">
    <${Icon} name="offline" />
    <span role="status">${t("line.lost")}</span>
    <span aria-hidden="true">${t("line.times", { since, next })}</span>
    <button class="button" type="button" onClick=${() => connection.retry()}>${t("line.now")}</button>
  </div>`;
}

follow(takes);
begin(ME).then(
  () => {
    mount(html`<${Chat} />`);
    requestAnimationFrame(() => setTimeout(loadLater));
  },
  (error) => {
    const again = () => location.reload();
    mount(html`<main class="login"><${Problem} error=${error} again=${again} /></main>`);
  },
);
