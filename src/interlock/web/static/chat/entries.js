// The messages of the transcript: what was said, what was done, and what waits for a decision.

import { size } from "../shared/format.js";
import { Icon } from "../shared/icons.js";
import { Foreign, marked } from "../shared/marks.js";
import { MarkdownStream } from "../shared/markdown.js";
import { t as common } from "../shared/text.js";
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from "../shared/view.js";
import { Batch } from "./approval.js";
import { Call } from "./call.js";
import { short } from "./menu.js";
import { isPicture, Preview } from "./preview.js";
import { branch, goOn, say } from "./state.js";
import { t } from "./text.js";

const SLOW = 8; // milliseconds that drawing may take in each frame

/** @typedef {import("./view.js").Item} Item */
/** @typedef {import("./view.js").Part} Part */

/**
 * A message.
 * @param {{item: Item, isLast: boolean, isLive: boolean}} props `isLive`: the answer is under way.
 */
export function Entry({ item, isLast, isLive }) {
  if (item.kind === "user") return html`<${Said} item=${item} />`;
  if (item.kind === "note") return html`<${Note} item=${item} isLast=${isLast} />`;
  return html`<${Reply} item=${item} live=${isLive} />`;
}

/** @param {{item: Item}} props */
function Said({ item }) {
  const [isEditing, setEditing] = useState(false);
  const [text, setText] = useState(item.content ?? "");
  const position = item.id;
  const may = typeof position === "number"; // hidden by the style while an answer is under way
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

/** @param {{of: {id: string, name: string, type?: string, bytes?: number, givenAs: "text" | "file" | "name"}[]}} props */
function Files({ of }) {
  if (of.length === 0) return null;
  return html`<ul class="files">
    ${of.map(
      (each) => html`<li class="file">
        ${isPicture(each.type) ? html`<${Preview} of=${each} />` : html`<${Icon} name="file" />`}
        <span>${marked(each.name)}</span>
        ${each.bytes !== undefined && html`<span class="muted">${size(each.bytes)}, ${t(`file.${each.givenAs}`)}</span>`}
      </li>`,
    )}
  </ul>`;
}

/** @param {{item: Item, live: boolean}} props */
function Reply({ item, live }) {
  const parts = item.parts?.value ?? [];
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
  if (part.kind === "question") return html`<${Asked} of=${part.question} />`;
  if (part.kind === "notice") return html`<p class="line-note"><span>${marked(part.content ?? "")}</span></p>`;
  if (part.kind === "reasoning") {
    return html`<details class="reasoning">
      <summary>${t("reasoning")}</summary>
      <${Plain} text=${part.text} />
    </details>`;
  }
  return html`<${Words} text=${part.text} />`;
}

/** What draws questions, once the first one has loaded it; false if it cannot be loaded. */
const drawn = signal(/** @type {typeof import("./question.js").Question | null | false} */ (null));

/** @param {{of: Part["question"]}} props */
function Asked({ of }) {
  useEffect(() => {
    import("./question.js").then(
      ({ Question }) => (drawn.value = Question),
      () => (drawn.value = false),
    );
  }, []);
  if (drawn.value === false) return html`<p class="problem" role="alert">${t("line.incomplete")}</p>`;
  return drawn.value && html`<${drawn.value} of=${of} />`;
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
    let pause = 0;
    const draw = () => {
      frame = pause = 0;
      const started = performance.now();
      stream.draw();
      const took = performance.now() - started;
      // A block that has grown very long is drawn less often, so that the page stays quick.
      if (took > SLOW) pause = setTimeout(() => ((pause = 0), stream.pending && request()), took * 4);
    };
    const request = () => {
      if (!pause) frame ||= requestAnimationFrame(draw);
    };
    stream.append(text.text);
    if (text.hasEnded) stream.end();
    else stream.draw();
    container.classList.toggle("growing", !text.hasEnded);
    text.show = (piece) => {
      if (piece !== null) {
        stream.append(piece);
        request();
        return;
      }
      cancelAnimationFrame(frame);
      clearTimeout(pause);
      stream.end();
      container.classList.remove("growing");
    };
    return () => {
      cancelAnimationFrame(frame);
      clearTimeout(pause);
      text.show = null;
      stream.clear();
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
    const isCut = item.code === "draft" || item.code === "interrupted";
    return html`<div class=${isCut ? "note tone-asking" : "note tone-failed"} data-error=${item.code}>
      <${Icon} name="warning" />
      <div class="grow"><strong>${reason(item.code ?? "")}</strong> <span class="sentence"><${Foreign} text=${item.content || (isCut ? t("draft") : "")} /></span></div>
      ${isLast && ENDED.includes(item.code ?? "") &&
      html`<button type="button" class="link" onClick=${goOn}>${t("continue")}</button>`}
    </div>`;
  }
  return html`<p class="line-note"><span>${t(item.note === "length" ? "note.length" : "note.stopped")}</span>
    ${item.note === "length" && isLast && html`<button type="button" class="link" onClick=${() => say(t("continue.please"), [])}>${t("continue")}</button>`}
  </p>`;
}

/** Reasons for which an answer ends early, and after which it can be continued. */
const ENDED = ["model_failed", "failed", "timeout", "interrupted", "draft", "internal", "step_limit"];

/** @param {string} code */
function reason(code) {
  const known = [...ENDED, "busy", "rate_limited", "too_large", "not_found", "overloaded"];
  return t(/** @type {any} */ (known.includes(code) ? `error.${code}` : "error.other"));
}

/** A turn that ended with its server. */
export function Interrupted() {
  return html`<div class="note tone-asking" data-interrupted>
    <${Icon} name="warning" />
    <div class="grow">${t("interrupted")}</div>
    <button type="button" class="button" onClick=${goOn}>${t("continue")}</button>
  </div>`;
}
