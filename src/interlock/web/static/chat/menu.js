// What can be done with the conversation that is shown.

import { Confirm, Dialog } from "../shared/dialog.js";
import { Icon } from "../shared/icons.js";
import { go } from "../shared/route.js";
import { html, useId, useState } from "../shared/view.js";
import { post } from "../shared/api.js";
import { attempt, current, download, loadList, remove, rename } from "./state.js";
import { t } from "./text.js";

/** @param {{panel: boolean, setPanel: (open: boolean) => void}} props */
export function Menu({ panel, setPanel }) {
  const conversation = current.value;
  const id = conversation.id.value;
  const menu = useId();
  const [asked, ask] = useState("");
  const close = () => ask("");
  /** @param {string} what */
  function choose(what) {
    document.getElementById(menu)?.hidePopover();
    ask(what);
  }
  async function copy() {
    document.getElementById(menu)?.hidePopover();
    await attempt(async () => {
      const made = await post(`/api/conversations/${id}/fork`, {});
      await loadList();
      go(`/c/${made.id}`);
    });
  }
  return html`
    <${Branches} />
    ${conversation.model.value && html`<span class="chip tone-accent model-chip">${short(conversation.model.value)}</span>`}
    ${id !== null &&
    html`<button type="button" class="button plain" aria-label=${t("export")} popovertarget=${`${menu}-export`}>
        <${Icon} name="export" /><span class="wide">${t("export")}</span>
      </button>
      <div popover id=${`${menu}-export`} class="menu">
        <button type="button" onClick=${() => download("markdown")}>${t("export.markdown")}</button>
        <button type="button" onClick=${() => download("json")}>${t("export.json")}</button>
        <button type="button" onClick=${() => print()}>${t("export.print")}</button>
      </div>
      <button type="button" class="button plain only" aria-label=${t("more")} popovertarget=${menu}>
        <${Icon} name="more" />
      </button>
      <div popover id=${menu} class="menu">
        <button type="button" onClick=${() => choose("rename")}>${t("rename")}</button>
        <button type="button" onClick=${copy}>${t("copy")}</button>
        <button type="button" class="danger" onClick=${() => choose("delete")}>${t("delete")}</button>
      </div>`}
    <button
      type="button"
      class="button plain only"
      aria-label=${t("panel")}
      title=${t("panel")}
      aria-pressed=${String(panel)}
      onClick=${() => setPanel(!panel)}
    >
      <${Icon} name="overview" />
    </button>
    ${asked === "rename" && html`<${Rename} close=${close} />`}
    ${asked === "delete" &&
    html`<${Confirm} title=${t("delete.title")} does=${t("delete")} danger act=${remove} close=${close}>
      <p>${t("delete.text", { title: conversation.title.value })}</p>
    <//>`}
  `;
}

/** @param {string} model */
export function short(model) {
  const name = model.replace(/@.*$/, "");
  const path = name.split(/[/\\]/);
  return path[path.length - 1] ?? name;
}

/** The copies of a conversation, as steps: 2 of 3. */
function Branches() {
  const conversation = current.value;
  const all = conversation.branches.value;
  if (all.length < 2) return null;
  const at = all.findIndex((each) => each.id === conversation.id.value);
  const to = (/** @type {number} */ step) => go(`/c/${all[(at + step + all.length) % all.length]?.id}`);
  return html`<span class="branches" role="group" aria-label=${t("branches")}>
    <button type="button" class="button plain only" aria-label=${t("branches.before")} onClick=${() => to(-1)}>‹</button>
    <span>${t("branches.of", { at: at + 1, all: all.length })}</span>
    <button type="button" class="button plain only" aria-label=${t("branches.after")} onClick=${() => to(1)}>›</button>
  </span>`;
}

/** @param {{close: () => void}} props */
function Rename({ close }) {
  const field = useId();
  const [title, setTitle] = useState(current.value.title.value);
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    if (title.trim()) await attempt(() => rename(title.trim()));
    close();
  }
  return html`<${Dialog} title=${t("rename.title")} close=${close}>
    <form class="stack" onSubmit=${submit}>
      <div class="field">
        <label for=${field}>${t("rename.label")}</label>
        <input
          id=${field}
          class="input"
          maxlength="200"
          value=${title}
          onInput=${(/** @type {any} */ event) => setTitle(event.currentTarget.value)}
        />
      </div>
      <div class="actions">
        <button class="button" type="button" onClick=${close}>${t("cancel")}</button>
        <button class="button main">${t("save")}</button>
      </div>
    </form>
  <//>`;
}
