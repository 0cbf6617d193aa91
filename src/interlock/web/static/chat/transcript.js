// The transcript: a window over the messages. It follows the end while the reader is there.

import { Icon } from "../shared/icons.js";
import { Problem } from "../shared/load.js";
import { Foreign } from "../shared/marks.js";
import { t as common } from "../shared/text.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../shared/view.js";
import { Empty } from "./empty.js";
import { jump, setQueue } from "./state.js";
import { t } from "./text.js";

const NEAR = 48; // pixels from the end that count as the end
const AHEAD = 1200; // pixels before an edge at which more messages are drawn

/** @typedef {import("./view.js").Conversation} Conversation */

/**
 * @param {{conversation: Conversation, later: typeof import("./later.js") | null}} props
 *   `later`: what draws messages, once it is loaded.
 */
export function Transcript({ conversation, later }) {
  const items = conversation.items.value;
  const { from, to } = conversation.range.value;
  const isBusy = conversation.turn.value !== null;
  const { scroller, inner, below, toEnd } = useScrolling(conversation, later !== null);
  const hasOlder = from > 0 || conversation.before.value !== null;
  const isReady = conversation.isLoaded.value && (later !== null || items.length === 0);
  return html`<div class="talk">
    <div class="body" ref=${scroller} tabindex="0" role="region" aria-label=${t("transcript")}>
      <div class="transcript" ref=${inner} data-turn=${conversation.turn.value?.id ?? null}>
        ${conversation.error.value && html`<${Problem} error=${conversation.error.value} again=${() => conversation.load()} />`}
        ${conversation.id.value === null && items.length === 0 && html`<${Empty} />`}
        ${!isReady && !conversation.error.value && html`<${Bones} />`}
        ${isReady &&
        hasOlder &&
        html`<button type="button" class="button older" onClick=${() => conversation.showOlder()}>${t("older")}</button>`}
        ${later !== null &&
        items
          .slice(from, to)
          .map((item, at) => entry(later, item, from + at === items.length - 1, isBusy))}
        ${later !== null && conversation.interrupted.value && html`<${later.Interrupted} />`}
        <${Queue} conversation=${conversation} />
      </div>
    </div>
    ${below && html`<button type="button" class="button below" onClick=${toEnd}><${Icon} name="down" />${t(isBusy ? "below" : "end")}</button>`}
    <p class="hidden" role="status">${announcement(conversation.said.value)}</p>
  </div>`;
}

/** @type {WeakMap<import("./view.js").Item, {node: any, isLast: boolean, isLive: boolean}>} */
const entries = new WeakMap();

/**
 * Draw a message, or return what was drawn: Preact passes over a node that it has seen.
 * @param {typeof import("./later.js")} later
 * @param {import("./view.js").Item} item
 * @param {boolean} isLast
 * @param {boolean} isBusy
 */
function entry({ Entry }, item, isLast, isBusy) {
  const isLive = isLast && isBusy;
  const before = entries.get(item);
  if (before?.isLast === isLast && before.isLive === isLive) return before.node;
  const node = html`<${Entry} key=${item.key} item=${item} isLast=${isLast} isLive=${isLive} />`;
  entries.set(item, { node, isLast, isLive });
  return node;
}

/**
 * Follow the end, draw more at the edges, and keep in place what the reader sees.
 * @param {Conversation} conversation
 * @param {boolean} canDraw Whether what draws messages is loaded.
 */
function useScrolling(conversation, canDraw) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const inner = useRef(/** @type {HTMLElement | null} */ (null));
  const kept = useRef(/** @type {{element: Element, top: number} | null} */ (null));
  const [below, setBelow] = useState(false);

  useEffect(() => {
    const box = /** @type {HTMLElement} */ (scroller.current);
    const distance = () => box.scrollHeight - box.scrollTop - box.clientHeight;
    const atEnd = () => distance() < NEAR && conversation.isAtEnd;
    /** Remember where the first message in view is, until more are drawn. */
    const keep = () => {
      const { top } = box.getBoundingClientRect();
      const messages = [...(inner.current?.querySelectorAll(":scope > :not(.older)") ?? [])];
      const seen = messages.find((each) => each.getBoundingClientRect().bottom > top);
      kept.current = seen ? { element: seen, top: seen.getBoundingClientRect().top } : null;
    };
    const extend = () => {
      const hasOlder = conversation.range.value.from > 0 || conversation.before.value !== null;
      if (hasOlder && conversation.isLoaded.value && box.scrollTop < AHEAD) void conversation.showOlder();
      else if (!conversation.isAtEnd && distance() < AHEAD) void conversation.showNewer();
    };
    const grown = new ResizeObserver(() => {
      if (conversation.follows) box.scrollTo(0, box.scrollHeight);
      else setBelow(!atEnd());
    });
    grown.observe(/** @type {HTMLElement} */ (inner.current));
    grown.observe(box);
    let last = box.scrollTop;
    const scrolled = () => {
      if (box.scrollTop < last - 1 && !atEnd()) conversation.follows = false;
      else if (atEnd()) conversation.follows = true;
      last = box.scrollTop;
      if (conversation.follows) setBelow(false);
      keep();
      extend();
    };
    const letGo = (/** @type {WheelEvent} */ event) => {
      if (event.deltaY < 0) conversation.follows = false;
    };
    const pressed = (/** @type {KeyboardEvent} */ event) => {
      const { key, target } = event;
      if ((key !== "Home" && key !== "End") || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
      if (/** @type {Element} */ (target).closest("input, textarea, select, dialog, [role=tablist]")) return;
      event.preventDefault();
      if (key === "End") toEnd();
      else toStart();
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    box.addEventListener("wheel", letGo, { passive: true });
    addEventListener("keydown", pressed);
    return () => {
      grown.disconnect();
      removeEventListener("keydown", pressed);
      box.removeEventListener("scroll", scrolled);
      box.removeEventListener("wheel", letGo);
    };
  }, [conversation]);

  useLayoutEffect(() => {
    const { at } = conversation;
    const box = scroller.current;
    kept.current = null;
    if (at !== null || conversation.loads.value < 2) conversation.follows = at === null;
    if (at !== null || conversation.follows) box?.scrollTo(0, at === null ? box.scrollHeight : 0);
    const all = inner.current?.querySelectorAll(":scope > :not(.older)") ?? [];
    for (const each of all) each.classList.remove("found");
    const index = conversation.items.value.findLastIndex(({ kind, id }) => kind !== "note" && Number(id) <= (at ?? -1));
    const found = /** @type {HTMLElement | undefined} */ (all[index]);
    if (!found) return;
    found.classList.add("found");
    found.tabIndex = -1;
    found.focus({ preventScroll: true });
    found.scrollIntoView({ block: found.clientHeight > (box?.clientHeight ?? 0) ? "start" : "center" });
  }, [conversation, conversation.loads.value, canDraw]);

  useLayoutEffect(() => {
    const { current: seen } = kept;
    if (conversation.follows || !seen?.element.isConnected || !scroller.current) return;
    const moved = seen.element.getBoundingClientRect().top - seen.top;
    if (moved) scroller.current.scrollTop += moved;
  }, [conversation.range.value]);

  function toStart() {
    conversation.follows = false;
    if (conversation.before.value !== null) void jump(-1);
    else if (conversation.range.value.from > 0) conversation.showStart();
    requestAnimationFrame(() => scroller.current?.scrollTo(0, 0));
  }
  function toEnd() {
    conversation.follows = true;
    setBelow(false);
    if (conversation.after.value !== null) void jump(null);
    else conversation.showEnd();
    requestAnimationFrame(() => scroller.current?.scrollTo(0, scroller.current.scrollHeight));
  }
  return { scroller, inner, below, toEnd };
}

/** The messages that wait for the end of an answer. @param {{conversation: Conversation}} props */
function Queue({ conversation }) {
  const waiting = conversation.queue.value;
  return waiting.map(
    (each, at) => html`<div class="said queued" key=${`q${at}`}>
      <p class="small muted">${t("queued")}</p>
      <p class="words"><${Foreign} text=${each.content} /></p>
      <button type="button" class="link" onClick=${() => setQueue(conversation, waiting.filter((other) => other !== each))}>
        ${t("queued.remove")}
      </button>
    </div>`,
  );
}

/** @param {string} said */
function announcement(said) {
  if (!said) return "";
  const [who, what] = said.split("|");
  if (who === "") return t(what === "error" ? "said.error" : what === "stopped" ? "said.stopped" : "said.done");
  if (what === "question") return t("said.question", { server: who ?? "" });
  return `${who}: ${common(/** @type {any} */ (`outcome.${what}`))}`;
}

function Bones() {
  const [isSlow, setSlow] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSlow(true), 150);
    return () => clearTimeout(timer);
  }, []);
  if (!isSlow) return null;
  return html`<div role="status" aria-label=${common("loading")}>
    <div class="bone"></div>
    <div class="bone"></div>
    <div class="bone"></div>
  </div>`;
}
