// Where messages are written: a draft that is kept, files, tools, the model, send and stop.

import { pageKey } from "../shared/api.js";
import { size } from "../shared/format.js";
import { Icon } from "../shared/icons.js";
import { marked } from "../shared/marks.js";
import { go } from "../shared/route.js";
import { effect, html, signal, untracked, useEffect, useId, useLayoutEffect, useRef, useState } from "../shared/view.js";
import { files, keep, kept, problem, show, text } from "./draft.js";
import { short } from "./menu.js";
import {
  chooseModel, chosenModel, connection, current, download, isOn, models, say, stop, tools,
} from "./state.js"; // prettier-ignore
import { t } from "./text.js";

const MAX_FILE = 16 * 1024 * 1024; // bytes

/** @typedef {import("./draft.js").Attached} Attached */
/** @typedef {typeof import("./later.js") | null} Later */

const field = { current: /** @type {HTMLTextAreaElement | null} */ (null) };
/** Which dialog is open. */
const asked = signal("");

/** Put a text into the composer. @param {string} words */
export function fill(words) {
  text.value = words;
  keep();
  field.current?.focus();
}

effect(() => {
  const id = current.value.id.value;
  untracked(() => show(id, t("unsent.closed")));
});

/** @param {{conversation: import("./view.js").Conversation, later: Later}} props */
export function Composer({ conversation, later }) {
  const id = useId();
  const picker = useRef(/** @type {HTMLInputElement | null} */ (null));
  const [isOver, setOver] = useState(false);
  const isRunning = conversation.turn.value !== null;
  const isOffline = ["lost", "ended"].includes(connection.line.value.state);
  const words = text.value;
  const commands = words.startsWith("/") && !words.includes("\n") ? found(words) : [];
  const [at, setAt] = useState(0);
  const uploading = files.value.some((each) => !each.id && !each.problem);
  const ready = files.value.filter((each) => each.id);
  const may = (words.trim() !== "" || ready.length > 0) && !uploading && !isOffline;

  // At once: what is typed between two conversations belongs to the new one.
  useLayoutEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current?.focus();
  }, [conversation]);

  /** @param {string} value */
  function write(value) {
    text.value = value;
    setAt(0);
    keep();
  }
  function send() {
    if (!may) return;
    const given = kept(ready);
    const before = files.value;
    files.value = [];
    write("");
    if (say(words.trim(), given)) return;
    files.value = before;
    write(words);
  }
  /** @param {{run: () => void}} command */
  function run(command) {
    write("");
    command.run();
  }
  /** @param {KeyboardEvent} event */
  function key(event) {
    if (event.isComposing) return;
    if (commands.length) {
      const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
      if (step) {
        event.preventDefault();
        setAt((at + step + commands.length) % commands.length);
        return;
      }
      if (event.key === "Enter" || event.key === "Tab") {
        event.preventDefault();
        const chosen = commands[at];
        if (chosen) run(chosen);
        return;
      }
    }
    if (event.key === "Enter" && !event.shiftKey && !matchMedia("(pointer: coarse)").matches) {
      event.preventDefault();
      send();
    } else if (event.key === "Escape" && isRunning) {
      event.preventDefault();
      stop();
    } else if (event.key === "ArrowUp" && words === "" && !isRunning && conversation.isAtEnd) {
      const edits = document.querySelectorAll('[data-role="user"] .said-tools button:first-child');
      if (edits.length) {
        event.preventDefault();
        /** @type {HTMLElement} */ (edits[edits.length - 1]).click();
      }
    }
  }
  // Anywhere on the page: a file that is dropped beside the composer would replace the page.
  useEffect(() => {
    const has = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false;
    /** @type {[string, (event: any) => void][]} */
    const handlers = [
      ["dragover", (event) => has(event) && (event.preventDefault(), setOver(true))],
      ["dragleave", (event) => event.relatedTarget === null && setOver(false)],
      ["drop", (event) => has(event) && (event.preventDefault(), setOver(false), attach(event.dataTransfer?.files))],
      ["paste", (event) => event.clipboardData?.files.length && (event.preventDefault(), attach(event.clipboardData.files))],
    ];
    for (const [kind, handle] of handlers) document.addEventListener(kind, handle);
    return () => {
      for (const [kind, handle] of handlers) document.removeEventListener(kind, handle);
    };
  }, []);
  const on = tools.value.filter((each) => isOn(conversation.tools.value, each.address)).length;
  const model = conversation.model.value || chosenModel.value || models.value[0] || "";
  return html`<div class="composer-place">
    <form
      class=${isOver ? "composer over" : "composer"}
      onSubmit=${(/** @type {Event} */ event) => (event.preventDefault(), send())}
    >
      ${commands.length > 0 &&
      html`<ul class="commands" role="listbox" id=${`${id}-commands`} aria-label=${t("commands")}>
        ${commands.map(
          (each, place) => html`<li
            role="option"
            id=${`${id}-${place}`}
            aria-selected=${String(place === at)}
            onMouseDown=${(/** @type {Event} */ event) => (event.preventDefault(), run(each))}
          >
            <strong class="mono">${each.name}</strong> <span class="muted">${each.about}</span>
          </li>`,
        )}
      </ul>`}
      ${problem.value &&
      html`<p class="not-sent" role="alert"><${Icon} name="warning" /><span><strong>${t("unsent")}</strong> <span class="sentence">${marked(problem.value)}</span></span></p>`}
      ${files.value.length > 0 && html`<ul class="files">${files.value.map((each) => html`<${File} key=${each.key} of=${each} later=${later} />`)}</ul>`}
      <textarea
        ref=${(/** @type {HTMLTextAreaElement | null} */ element) => (field.current = element)}
        rows="1"
        aria-label=${t("message")}
        aria-controls=${commands.length ? `${id}-commands` : null}
        aria-activedescendant=${commands.length ? `${id}-${at}` : null}
        placeholder=${t(isOffline ? "message.offline" : "message.hint")}
        value=${words}
        onInput=${(/** @type {any} */ event) => write(event.currentTarget.value)}
        onKeyDown=${key}
      ></textarea>
      <div class="composer-tools">
        <button type="button" class="button plain only" aria-label=${t("attach")} title=${t("attach")} onClick=${() => picker.current?.click()}>
          <${Icon} name="clip" />
        </button>
        <input ref=${picker} type="file" multiple hidden onChange=${(/** @type {any} */ event) => {
          attach(event.currentTarget.files);
          event.currentTarget.value = "";
        }} />
        <button type="button" class="button plain" onClick=${() => (asked.value = "tools")}>
          <${Icon} name="tool" />${t("tools.of", { on, n: tools.value.length })}
        </button>
        ${models.value.length > 1
          ? html`<select
              class="model"
              aria-label=${t("model")}
              value=${model}
              onChange=${(/** @type {any} */ event) => chooseModel(event.currentTarget.value)}
            >
              ${models.value.map((each) => html`<option value=${each}>${short(each)}</option>`)}
            </select>`
          : html`<span class="model muted">${short(model)}</span>`}
        <span class="grow"></span>
        ${isRunning &&
        html`<button type="button" class="button danger" onClick=${stop}>
          <${Icon} name="square" />${t("stop")} <kbd aria-hidden="true">Esc</kbd>
        </button>`}
        ${(!isRunning || words.trim() !== "") &&
        html`<button class="button main only" aria-label=${t(isRunning ? "send.later" : "send")} title=${t(isRunning ? "send.later" : "send")} disabled=${!may}>
          <${Icon} name="send" />
        </button>`}
      </div>
    </form>
    ${asked.value === "tools" && later && html`<${later.Tools} conversation=${conversation} close=${() => (asked.value = "")} />`}
  </div>`;
}

// Commands

/** @param {string} typed */
function found(typed) {
  const exists = current.value.id.value !== null;
  const all = [
    { name: "/new", about: t("command.new"), run: () => go("/"), may: true },
    { name: "/tools", about: t("command.tools"), run: () => (asked.value = "tools"), may: true },
    { name: "/model", about: t("command.model"), run: () => document.querySelector("select.model") instanceof HTMLElement && /** @type {HTMLElement} */ (document.querySelector("select.model")).focus(), may: models.value.length > 1 },
    { name: "/export", about: t("command.export"), run: () => void download("markdown"), may: exists },
  ];
  return all.filter((each) => each.may && each.name.startsWith(typed));
}

// Files

/** @param {FileList | undefined | null} given */
function attach(given) {
  for (const file of given ?? []) {
    /** @type {Attached} */
    const made = {
      key: crypto.randomUUID(), name: file.name, bytes: file.size, type: "", done: 0, id: "", givenAs: "name", problem: "", file,
    }; // prettier-ignore
    if (file.size > MAX_FILE) made.problem = t("file.large", { size: size(file.size), limit: size(MAX_FILE) });
    else made.request = upload(made.key, file);
    files.value = [...files.value, made];
  }
}

/** @param {string} key @param {Partial<Attached>} changes */
function change(key, changes) {
  files.value = files.value.map((each) => (each.key === key ? { ...each, ...changes } : each));
}

/** @param {string} key @param {File} file */
function upload(key, file) {
  const request = new XMLHttpRequest(); // fetch does not say how far it is
  request.open("POST", `/api/files?name=${encodeURIComponent(file.name)}`);
  request.setRequestHeader("X-Interlock-Key", pageKey() ?? "");
  request.setRequestHeader("Content-Type", "application/octet-stream");
  request.upload.onprogress = (event) => change(key, { done: event.loaded / Math.max(1, event.total) });
  request.onerror = () => change(key, { problem: t("file.failed") });
  request.onload = () => {
    if (request.status !== 201) {
      change(key, { problem: request.status === 507 ? JSON.parse(request.responseText).detail : t("file.failed") });
      return;
    }
    const { id, type, givenAs } = JSON.parse(request.responseText);
    change(key, { id, type, givenAs, done: 1 });
    keep();
  };
  request.send(file);
  return request;
}

/** @param {{of: Attached, later: Later}} props */
function File({ of, later }) {
  function remove() {
    of.request?.abort();
    files.value = files.value.filter((each) => each.key !== of.key);
    keep();
  }
  const what = of.problem || (of.id ? `${size(of.bytes)}, ${t(`file.${of.givenAs}`)}` : size(of.bytes));
  return html`<li class=${of.problem ? "file wrong" : "file"}>
    ${later?.isPicture(of.type) ? html`<${later.Preview} of=${of} />` : html`<${Icon} name=${of.problem ? "warning" : "file"} />`}
    <span>${marked(of.name)} <span class="muted" role=${of.problem ? "alert" : null}>${what}</span></span>
    ${!of.id && !of.problem && html`<progress aria-label=${of.name} value=${of.done} max="1"></progress>`}
    <button type="button" class="button plain only" aria-label=${t("file.remove", { name: of.name })} onClick=${remove}>
      <${Icon} name="cross" />
    </button>
  </li>`;
}
