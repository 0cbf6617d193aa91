// What waits for the person: questions of the server, and calls that a rule asks about.

import { ApiError } from "../shared/api.js";
import { Icon } from "../shared/icons.js";
import { Arguments, SeenFolds, Unread, useReview } from "../shared/json.js";
import { Problem } from "../shared/load.js";
import { Foreign, marked } from "../shared/marks.js";
import { Chip, OutcomeChip } from "../shared/outcomes.js";
import { html, useState } from "../shared/view.js";
import { Form, Unsent, unsentIn } from "./form.js";
import { initial } from "./model.js";
import { answer, inspection } from "./state.js";
import { t } from "./text.js";

export function Asks() {
  const asks = inspection.value?.asks ?? [];
  return asks.map((each) => (each.kind === "approval" ? html`<${Approval} key=${each.id} ask=${each} />` : html`<${Question} key=${each.id} ask=${each} />`));
}

/** Answer, and show what went wrong. @param {string} id */
function useAnswer(id) {
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const reply = (/** @type {"accept" | "decline" | "cancel"} */ action, /** @type {any} */ content = undefined) =>
    answer(id, action, content).then(
      () => setError(null),
      (failed) => setError(failed),
    );
  return /** @type {const} */ ([reply, error, setError]);
}

/** @param {{ask: any}} props */
function Approval({ ask }) {
  const [reply, error] = useAnswer(ask.id);
  const review = useReview({ "": ask.arguments });
  return html`<article class="call" data-state="asking" aria-label=${ask.address}>
    <div class="call-head"><${OutcomeChip} state="asking" /><span class="mono">${marked(ask.address)}</span></div>
    <div class="call-body">
      <p class="small muted">${t(ask.byApp ? "ask.app" : "ask.rule", { rule: ask.rule })}</p>
      <${SeenFolds.Provider} value=${review.seen}><${Arguments} value=${ask.arguments} /><//>
      <div class="decide">
        <button type="button" class="button main deciding" disabled=${review.unread > 0} onClick=${() => reply("accept")}>${t("ask.approve")}</button>
        <button type="button" class="button deciding" onClick=${() => reply("decline")}>${t("ask.deny")}</button>
        <${Unread} review=${review} />
      </div>
      ${error && html`<${Problem} error=${error} />`}
    </div>
  </article>`;
}

/** @param {{ask: any}} props */
function Question({ ask }) {
  const { message, mode, requestedSchema: schema, url } = ask.params;
  const [value, setValue] = useState(() => (schema ? (initial(schema, schema) ?? {}) : {}));
  const [reply, error, setError] = useAnswer(ask.id);
  const [unsent] = useState(() => new Map());
  const send = () => {
    const why = unsentIn(unsent);
    if (why) setError(new ApiError(0, "unsent", why));
    else void reply("accept", value);
  };
  const isUrl = mode === "url";
  const target = isUrl ? linkOf(url) : null;
  return html`<article class="call" data-state="asking" aria-label=${t("ask.question")}>
    <div class="call-head"><${Chip} tone="asking" icon="question">${t("ask.question")}<//></div>
    <div class="call-body">
      <p><${Foreign} text=${String(message ?? "")} /></p>
      ${schema && html`<${Unsent.Provider} value=${unsent}><${Form} schema=${schema} value=${value} set=${setValue} problems=${new Map()} /><//>`}
      ${isUrl && html`<p class="mono small">${marked(String(url))}</p>`}
      <div class="decide">
        ${target
          ? html`<a class="button main deciding" href=${target} target="_blank" rel="noopener noreferrer" onClick=${() => reply("accept")}><${Icon} name="link" />${t("ask.open")}</a>`
          : !isUrl && html`<button type="button" class="button main deciding" onClick=${send}>${t("ask.send")}</button>`}
        <button type="button" class="button deciding" onClick=${() => reply("decline")}>${t("ask.decline")}</button>
      </div>
      ${error && html`<${Problem} error=${error} />`}
    </div>
  </article>`;
}

/** @param {string} url */
function linkOf(url) {
  try {
    const found = new URL(url);
    return ["http:", "https:"].includes(found.protocol) ? found.href : null;
  } catch {
    return null;
  }
}
