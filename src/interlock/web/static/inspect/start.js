// The first page: which server to inspect.

import { Icon } from "../shared/icons.js";
import { Missing, Problem, useLoad } from "../shared/load.js";
import { marked } from "../shared/marks.js";
import { go } from "../shared/route.js";
import { html, useEffect, useId, useState } from "../shared/view.js";
import { eras, pathOf } from "./side.js";
import { begin, inspection, problem } from "./state.js";
import { t } from "./text.js";

export default function Start() {
  const loaded = useLoad("/api/inspect");
  const found = loaded.data;
  useEffect(() => {
    if (found) eras.value = found.eras;
  }, [found]);
  if (!found) return html`<${Missing} of=${loaded} />`;
  return html`<div class="stack start">
    <p>${t("start.about")}</p>
    ${found.items.length === 0 && html`<p class="muted">${t("start.none")}</p>`}
    <ul class="servers">
      ${found.items.map(
        (/** @type {any} */ each) => html`<li>
          <a class="box server-link" href=${pathOf(each.name)}>
            <${Icon} name="server" /><span class="mono grow">${marked(each.name)}</span>
            <span class="muted small">${t(/** @type {any} */ (`kind.${each.kind}`))}${each.tools > 0 && `, ${t("tools.n", { n: each.tools })}`}</span>
          </a>
        </li>`,
      )}
    </ul>
    ${found.local && html`<${Other} />`}
  </div>`;
}

/** A server that is in no file. */
function Other() {
  const id = useId();
  const [text, setText] = useState("");
  /** @param {Event} event */
  async function submit(event) {
    event.preventDefault();
    const given = text.trim();
    if (!given) return;
    // Never from an address: the author of a link would choose what is started.
    await begin(/^https?:\/\//.test(given) ? { url: given } : { command: given });
    if (inspection.value) go(pathOf(inspection.value.server));
  }
  return html`<form class="box" onSubmit=${submit}>
    <div class="box-body field">
      <label for=${id}>${t("start.other")}</label>
      <div class="row">
        <input id=${id} class="input mono" autocomplete="off" spellcheck=${false} placeholder="python server.py" value=${text} onInput=${(/** @type {any} */ event) => setText(event.currentTarget.value)} />
        <button class="button main">${t("start.go")}</button>
      </div>
      <span class="hint">${t("start.hint")}</span>
      ${problem.value && html`<${Problem} error=${problem.value} />`}
    </div>
  </form>`;
}
