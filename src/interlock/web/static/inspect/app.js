// The app of a tool, with what was called and its result. It is opened for each result anew.

import { ApiError, post } from "../shared/api.js";
import { Box } from "../shared/app_box.js";
import { Problem } from "../shared/load.js";
import { t } from "../shared/text.js";
import { html, useEffect, useState } from "../shared/view.js";
import { at, resultPart } from "./state.js";

/** @param {{card: import("./types.js").Card}} props */
export default function App({ card }) {
  const [wanted, setWanted] = useState(1);
  const [opened, setOpened] = useState(/** @type {any} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  useEffect(() => {
    let isCurrent = true;
    setOpened(null);
    setError(null);
    if (wanted) {
      post(at("/app"), { tool: card.name }).then(
        (found) => isCurrent && setOpened(found),
        (problem) => isCurrent && problem instanceof ApiError && setError(problem),
      );
    }
    return () => {
      isCurrent = false;
    };
  }, [wanted]);
  if (error) return html`<${Problem} error=${error} again=${() => setWanted(wanted + 1)} />`;
  if (!wanted) return html`<button type="button" class="button" onClick=${() => setWanted(1)}>${t("app.open")}</button>`;
  if (!opened) return null;

  /** @param {string} name @param {object | undefined} given */
  async function call(name, given) {
    const params = { name, arguments: given ?? {} };
    const made = await post(at("/send"), { method: "tools/call", params, app: true, checks: false });
    if (made.result) return made.result;
    throw new ApiError(0, made.reason, made.text);
  }
  const handed = async () => {
    const { result } = card.cuts ? await resultPart(card.call, { whole: "true" }) : card;
    return { arguments: card.arguments, result };
  };
  const app = { ...opened, key: card.call, address: card.address, handed, call, fill: null };
  return html`<${Box} key=${opened.path} app=${app} close=${() => setWanted(0)} />`;
}
