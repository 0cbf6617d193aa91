// The transcript: what was said, what was done, and what waits for a decision.

import { Icon } from "../shared/icons.js";
import { Problem } from "../shared/load.js";
import { size } from "../shared/format.js";
import { Foreign, marked } from "../shared/marks.js";
import { MarkdownStream } from "../shared/markdown.js";
import { t as common } from "../shared/text.js";
import { html, useEffect, useLayoutEffect, useRef, useState } from "../shared/view.js";
import { Batch } from "./approval.js";
import { Call } from "./call.js";
import { Empty } from "./empty.js";
import { short } from "./menu.js";
import { Question } from "./question.js";
import { branch, goOn, say } from "./state.js";
import { t } from "./text.js";

/** @typedef {import("./view.js").Item} Item */
/** @typedef {import("./view.js").Part} Part */

const NEAR = 48; // pixels from the end that count as the end

/** @param {{conversation: import("./view.js").Conversation}} props */
export function Transcript({ conversation }) {
  const scroller = useRef(/** @type {HTMLElement | null} */ (null));
  const inner = useRef(/** @type {HTMLElement | null} */ (null));
  const follows = useRef(true);
  const [below, setBelow] = useState(false);
  const items = conversation.items.value;
  const id = conversation.id.value;

  useEffect(() => {
    const box = /** @type {HTMLElement} */ (scroller.current);
    const atEnd = () => box.scrollHeight - box.scrollTop - box.clientHeight < NEAR;
    const toEnd = () => box.scrollTo(0, box.scrollHeight);
    const grown = new ResizeObserver(() => {
      if (follows.current) toEnd();
      else setBelow(!atEnd());
    });
    grown.observe(/** @type {HTMLElement} */ (inner.current));
    grown.observe(box);
    let last = box.scrollTop;
    const scrolled = () => {
      if (box.scrollTop < last - 1 && !atEnd()) follows.current = false;
      else if (atEnd()) follows.current = true;
      last = box.scrollTop;
      if (follows.current) setBelow(false);
    };
    const letGo = (/** @type {WheelEvent} */ event) => {
      if (event.deltaY < 0) follows.current = false;
    };
    box.addEventListener("scroll", scrolled, { passive: true });
    box.addEventListener("wheel", letGo, { passive: true });
    return () => {
      grown.disconnect();
      box.removeEventListener("scroll", scrolled);
      box.removeEventListener("wheel", letGo);
    };
  }, [conversation]);

  useLayoutEffect(() => {
    follows.current = true;
    const box = scroller.current;
    box?.scrollTo(0, box.scrollHeight);
  }, [conversation, conversation.isLoaded.value]);

  async function older() {
    const box = /** @type {HTMLElement} */ (scroller.current);
    const before = box.scrollHeight - box.scrollTop;
    follows.current = false;
    await conversation.loadOlder();
    requestAnimationFrame(() => box.scrollTo(0, box.scrollHeight - before));
  }

  return html`<div class="talk">
    <div class="body" ref=${scroller} tabindex="0" role="region" aria-label=${t("transcript")}>
      <div class="transcript" ref=${inner} data-turn=${conversation.turn.value?.id ?? null}>
        ${conversation.error.value && html`<${Problem} error=${conversation.error.value} again=${() => conversation.load()} />`}
        ${id === null && items.length === 0 && html`<${Empty} />`}
        ${!conversation.isLoaded.value && !conversation.error.value && html`<${Bones} />`}
        ${conversation.before.value !== null &&
        html`<button type="button" class="button older" onClick=${older}>${t("older")}</button>`}
        ${items.map((item, at) => html`<${Entry} key=${item.key} item=${item} isLast=${at === items.length - 1} isBusy=${conversation.turn.value !== null} />`)}
        ${conversation.interrupted.value && html`<${Interrupted} />`}
        ${conversation.queue.value.map(
          (each, at) => html`<div class="said queued" key=${`q${at}`}>
            <p class="small muted">${t("queued")}</p>
            <p class="words"><${Foreign} text=${each.content} /></p>
            <button
              type="button"
              class="link"
              onClick=${() => (conversation.queue.value = conversation.queue.value.filter((other) => other !== each))}
            >
              ${t("queued.remove")}
            </button>
          </div>`,
        )}
      </div>
    </div>
    ${below &&
    html`<button
      type="button"
      class="button below"
      onClick=${() => {
        follows.current = true;
        setBelow(false);
        scroller.current?.scrollTo(0, scroller.current.scrollHeight);
      }}
    >
      <${Icon} name="down" />${t("below")}
    </button>`}
    <p class="hidden" role="status">${announcement(conversation.said.value)}</p>
  </div>`;
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

/** @param {{item: Item, isLast: boolean, isBusy: boolean}} props */
function Entry({ item, isLast, isBusy }) {
  if (item.kind === "user") return html`<${Said} item=${item} isBusy=${isBusy} />`;
  if (item.kind === "note") return html`<${Note} item=${item} isLast=${isLast} />`;
  return html`<${Reply} item=${item} isLast=${isLast} isBusy=${isBusy} />`;
}

/** @param {{item: Item, isBusy: boolean}} props */
function Said({ item, isBusy }) {
  const [isEditing, setEditing] = useState(false);
  const [text, setText] = useState(item.content ?? "");
  const position = item.id;
  const may = typeof position === "number" && !isBusy;
  if (isEditing) {
    const send = () => {
      setEditing(false);
      if (text.trim()) branch(Number(position), text, item.files);
    };
    return html`<form class="said editing" onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), send())}>
      <textarea
        class="input"
        aria-label=${t("edit")}
        rows="3"
        value=${text}
        onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)}
        ref=${(/** @type {HTMLElement | null} */ field) => field?.focus()}
      ></textarea>
      <p class="small muted">${t("edit.hint")}</p>
      <div class="row">
        <button class="button main">${t("edit.send")}</button>
        <button class="button" type="button" onClick=${() => setEditing(false)}>${t("cancel")}</button>
      </div>
    </form>`;
  }
  return html`<article class="said" data-role="user" aria-label=${t("you")}>
    <p class="words"><${Foreign} text=${item.content ?? ""} /></p>
    <${Files} of=${item.files ?? []} />
    ${item.isWaiting && html`<p class="small muted">${t("sending")}</p>`}
    ${may &&
    html`<div class="said-tools">
      <button type="button" class="link small" onClick=${() => setEditing(true)}>${t("edit")}</button>
      <button type="button" class="link small" onClick=${() => branch(Number(position), item.content ?? "", item.files)}>
        ${t("again")}
      </button>
    </div>`}
  </article>`;
}

/** @param {{of: any[]}} props */
export function Files({ of }) {
  if (of.length === 0) return null;
  return html`<ul class="files">
    ${of.map(
      (each) => html`<li class="file">
        <${Icon} name="file" /><span>${marked(each.name)}</span>
        ${each.bytes !== undefined && html`<span class="muted">${size(each.bytes)}, ${t(each.givenAs === "text" ? "file.text" : "file.name")}</span>`}
      </li>`,
    )}
  </ul>`;
}

/** @param {{item: Item, isLast: boolean, isBusy: boolean}} props */
function Reply({ item, isLast, isBusy }) {
  const parts = item.parts?.value ?? [];
  const live = isLast && isBusy;
  return html`<article class="reply" data-role="assistant" data-turn=${item.turn ?? null} aria-label=${t("assistant")} aria-busy=${String(live)}>
    <p class="who"><strong>${t("assistant")}</strong> ${item.model && html`<span class="muted">${short(item.model)}</span>`}</p>
    ${grouped(parts).map((group) =>
      group.length > 1
        ? html`<${Batch} key=${`b-${group[0]?.key}`} cards=${group.map((part) => part.card)} />`
        : html`<${Piece} key=${group[0]?.key} part=${group[0]} />`,
    )}
    ${live && !parts.length && html`<p class="thinking"><span class="caret"></span><span class="hidden">${t("thinking")}</span></p>`}
  </article>`;
}

/**
 * Return the parts, with calls of one tool that wait for the same person together.
 * @param {Part[]} parts
 */
function grouped(parts) {
  /** @type {Part[][]} */
  const groups = [];
  for (const part of parts) {
    const card = part.card?.value;
    const with_ = card?.approval
      ? groups.find((group) => group[0]?.card?.value.approval && group[0].card.value.tool === card.tool)
      : undefined;
    if (with_) with_.push(part);
    else groups.push([part]);
  }
  return groups;
}

/** @param {{part: Part}} props */
function Piece({ part }) {
  if (part.kind === "call") return html`<${Call} of=${part.card} />`;
  if (part.kind === "question") return html`<${Question} of=${part.question} />`;
  if (part.kind === "reasoning") {
    return html`<details class="reasoning">
      <summary>${t("reasoning")}</summary>
      <${Plain} text=${part.text} />
    </details>`;
  }
  return html`<${Words} text=${part.text} />`;
}

/**
 * A text of the model. It is drawn at most once a frame, whatever arrives.
 * @param {{text: import("./view.js").Growing}} props
 */
function Words({ text }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const container = /** @type {HTMLElement} */ (box.current);
    const labels = { copy: common("copy"), copied: common("copied") };
    const stream = new MarkdownStream(container, labels);
    let frame = 0;
    const draw = () => {
      frame = 0;
      stream.draw();
    };
    stream.append(text.text);
    if (text.hasEnded) stream.end();
    else stream.draw();
    container.classList.toggle("growing", !text.hasEnded);
    text.show = (piece) => {
      if (piece !== null) {
        stream.append(piece);
        frame ||= requestAnimationFrame(draw);
        return;
      }
      cancelAnimationFrame(frame);
      stream.end();
      container.classList.remove("growing");
    };
    return () => {
      cancelAnimationFrame(frame);
      text.show = null;
      container.replaceChildren();
    };
  }, [text]);
  return html`<div class="words markdown" ref=${box} onClick=${askBeforeLeaving}></div>`;
}

/** @param {{text: import("./view.js").Growing}} props */
function Plain({ text }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useLayoutEffect(() => {
    const node = document.createTextNode(text.text);
    box.current?.replaceChildren(node);
    text.show = (piece) => {
      if (piece !== null) node.appendData(piece);
    };
    return () => {
      text.show = null;
    };
  }, [text]);
  return html`<p class="words muted" ref=${box}></p>`;
}

/** @param {MouseEvent} event */
function askBeforeLeaving(event) {
  const link = /** @type {Element} */ (event.target).closest("a");
  // What tools return may have written the link.
  if (link && !confirm(t("leave", { host: link.dataset.host ?? link.host }))) event.preventDefault();
}

/** @param {{item: Item, isLast: boolean}} props */
function Note({ item, isLast }) {
  if (item.note === "model") {
    return html`<p class="line-note"><span>${t("model.switched", { model: short(item.content ?? "") })}</span></p>`;
  }
  if (item.note === "error") {
    return html`<div class="note tone-failed" data-error=${item.code}>
      <${Icon} name="warning" />
      <div class="grow"><strong>${reason(item.code ?? "")}</strong> <${Foreign} text=${item.content ?? ""} /></div>
      ${isLast && ["model_failed", "timeout", "interrupted", "internal", "step_limit"].includes(item.code ?? "") &&
      html`<button type="button" class="link" onClick=${goOn}>${t("continue")}</button>`}
    </div>`;
  }
  return html`<p class="line-note"><span>${t(item.note === "length" ? "note.length" : "note.stopped")}</span>
    ${item.note === "length" && isLast && html`<button type="button" class="link" onClick=${() => say(t("continue.please"), [])}>${t("continue")}</button>`}
  </p>`;
}

/** @param {string} code */
function reason(code) {
  const known = ["model_failed", "timeout", "interrupted", "internal", "step_limit", "busy", "rate_limited", "too_large", "not_found", "overloaded"];
  return t(/** @type {any} */ (known.includes(code) ? `error.${code}` : "error.other"));
}

function Interrupted() {
  return html`<div class="note tone-asking" data-interrupted>
    <${Icon} name="warning" />
    <div class="grow">${t("interrupted")}</div>
    <button type="button" class="button" onClick=${goOn}>${t("continue")}</button>
  </div>`;
}
