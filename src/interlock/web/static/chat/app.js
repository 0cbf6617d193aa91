// The app of a call in the chat: when it runs, and what its user is asked before its calls run.

import { ApiError, get, post } from "../shared/api.js";
import { Box } from "../shared/app_box.js";
import { Asking } from "../shared/asking.js";
import { Problem } from "../shared/load.js";
import { page } from "../shared/page.js";
import { t } from "../shared/text.js";
import { html, signal, useEffect, useState } from "../shared/view.js";
import { fill } from "./composer.js";
import { chooseTool } from "./state.js";

const MAX_ALIVE = 6;
const WAIT = 25; // seconds that the server waits for the end of a call

/** The calls whose apps run, the one opened last at the end. */
const alive = signal(/** @type {string[]} */ ([]));

/**
 * @typedef {object} Opened
 * @property {string} id
 * @property {string} path
 * @property {string} server
 * @property {boolean} hasBorder
 * @property {any} tool
 */

/**
 * The app of a call. It runs at once where the call has just ended, and else when it is opened.
 * @param {{card: import("./view.js").Card, runs: boolean}} props
 */
export function App({ card, runs }) {
  const id = card.id ?? "";
  const [wanted, setWanted] = useState(runs);
  const [accept, setAccept] = useState("");
  const [opened, setOpened] = useState(/** @type {Opened | null} */ (null));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const isAlive = alive.value.includes(id);

  useEffect(() => {
    if (!wanted) return undefined;
    let isCurrent = true;
    alive.value = [...alive.value.filter((each) => each !== id), id].slice(-MAX_ALIVE);
    post("/api/apps", { call: id, ...(accept && { accept }) }).then(
      (found) => isCurrent && setOpened(found),
      (problem) => isCurrent && problem instanceof ApiError && setError(problem),
    );
    return () => {
      isCurrent = false;
      alive.value = alive.value.filter((each) => each !== id);
    };
  }, [wanted, accept]);
  useEffect(() => {
    if (opened && !isAlive) close(); // newer apps have taken its place
  }, [isAlive, opened]);

  function close() {
    setWanted(false);
    setOpened(null);
    setError(null);
  }
  const changed = error?.reason === "app_changed" ? /\((\w+)\)$/.exec(error.message)?.[1] : undefined;
  if (changed) {
    return html`<div class="note tone-held" role="status">
      <div class="grow">${t("app.changed")}</div>
      <button
        type="button"
        class="button"
        onClick=${() => {
          setError(null);
          setAccept(changed);
        }}
      >
        ${t("app.accept")}
      </button>
    </div>`;
  }
  if (error) return html`<${Problem} error=${error} again=${close} />`;
  if (!wanted) return html`<button type="button" class="button" onClick=${() => setWanted(true)}>${t("app.open")}</button>`;
  if (!opened) return null;
  return html`<${Running} key=${opened.id} opened=${opened} card=${card} close=${close} />`;
}

/** @param {{opened: Opened, card: import("./view.js").Card, close: () => void}} props */
function Running({ opened, card, close }) {
  const [asked, setAsked] = useState(/** @type {import("../shared/asking.js").Asked[]} */ ([]));
  const path = `/api/apps/${opened.id}/calls`;

  /** @param {string} name @param {object | undefined} given */
  async function call(name, given) {
    let found = await post(path, { name, ...(given && { arguments: given }) });
    const mine = found.call;
    const without = (/** @type {any[]} */ all) => all.filter((each) => each.call !== mine);
    try {
      while (!found.result) {
        const now = found.asked;
        setAsked((all) => (now ? [...without(all), now] : without(all)));
        found = await get(`${path}/${mine}?wait=${WAIT}&seen=${now?.hash ?? ""}`);
      }
      return found.result;
    } finally {
      setAsked(without);
    }
  }
  /** Let the tool run from now on, and what waits of it. @param {import("../shared/asking.js").Asked} chosen */
  async function always(chosen) {
    if (!(await chooseTool(chosen.tool, "on"))) return;
    const others = asked.filter((each) => each.tool === chosen.tool && each.call !== chosen.call);
    await Promise.all(others.map((each) => post(`${path}/${each.call}/approve`, { hash: each.hash }).catch(() => {})));
  }
  const app = {
    ...opened,
    key: card.key,
    address: card.tool,
    handed: () => get(`/api/calls/${encodeURIComponent(card.id ?? "")}`),
    call,
    fill,
  };
  return html`<${Box} app=${app} close=${close}>
    ${asked.map(
      (each) => html`<p class="small">${t("app.asks", { server: opened.server })}</p>
        <${Asking} key=${each.call} of=${each} path=${`${path}/${each.call}`} mayDecide=${true} done=${async () => {}} always=${page.builtIn ? () => always(each) : null} />`,
    )}
  <//>`;
}
