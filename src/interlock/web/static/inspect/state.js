// The inspection that the page shows: the server, its lists, the calls, and the wire.

import { ApiError, get, post, request } from "../shared/api.js";
import { parse, stringify } from "../shared/exact.js";
import { batch, signal } from "../shared/view.js";

const WAIT = 25; // seconds that the server waits for the next entry
const RETRY = [1000, 2000, 5000, 10_000]; // milliseconds
const KEPT = 4000; // entries

export const inspection = signal(/** @type {import("./types.js").Inspection | null} */ (null));
export const problem = signal(/** @type {ApiError | null} */ (null));
/** The server does not answer; the page tries again. */
export const isOffline = signal(false);
export const entries = signal(/** @type {import("./types.js").Entry[]} */ ([]));
export const dropped = signal(0);
/** The entry that is shown below the wire, by its number. */
export const chosen = signal(0);

/** @type {AbortController | null} */
let following = null;
/** What is inspected, to begin again when the server has forgotten it. @type {any} */
let wanted = null;

/**
 * Begin to inspect a server, or go on with it.
 * @param {{server?: string, command?: string, url?: string, as?: string}} given
 */
export async function begin(given) {
  const now = inspection.value;
  if (now && stringify(wanted) === stringify(given) && now.state !== "closed") return;
  following?.abort();
  const mine = new AbortController();
  following = mine;
  wanted = given;
  batch(() => {
    inspection.value = null;
    problem.value = null;
    entries.value = [];
    chosen.value = 0;
  });
  try {
    const found = await request("POST", "/api/inspect", given, mine.signal);
    if (following !== mine) return;
    inspection.value = found;
    void follow(found.id, mine.signal);
  } catch (error) {
    if (following === mine) problem.value = known(error);
  }
}

/** @param {unknown} error */
function known(error) {
  return error instanceof ApiError ? error : new ApiError(0, "page", String(error));
}

/** @param {string} id @param {AbortSignal} signal */
async function follow(id, signal) {
  let failures = 0;
  while (!signal.aborted) {
    const after = entries.value.at(-1)?.n ?? 0;
    const version = inspection.value?.version ?? 0;
    try {
      const found = await get(`/api/inspect/${id}/wire?after=${after}&version=${version}&wait=${WAIT}`, signal);
      if (signal.aborted) return;
      failures = 0;
      batch(() => {
        isOffline.value = false;
        dropped.value = found.dropped;
        if (found.entries.length) entries.value = [...entries.value, ...found.entries].slice(-KEPT);
      });
      if (found.version !== version) inspection.value = await get(`/api/inspect/${id}`, signal);
    } catch (error) {
      if (signal.aborted) return;
      const { status, reason } = known(error);
      if (status === 404) {
        const again = wanted;
        wanted = null;
        void begin(again);
        return;
      }
      if (status !== 0 && status < 500) {
        problem.value = known(error);
        return;
      }
      isOffline.value = reason === "offline";
      await new Promise((done) => setTimeout(done, RETRY[Math.min(failures, RETRY.length - 1)]));
      failures += 1;
    }
  }
}

/** The address of a route of this inspection. @param {string} path */
export function at(path) {
  return `/api/inspect/${inspection.value?.id ?? ""}${path}`;
}

/** Connect again. @param {string} era "" for the same as before. */
export async function restart(era = "") {
  inspection.value = await post(at("/restart"), { era });
}

/**
 * Send a request to the server, and return how it ended.
 * @param {string} method
 * @param {any} params
 * @param {{checks?: boolean}} [options]
 * @returns {Promise<import("./types.js").Card>}
 */
export function send(method, params, { checks = true } = {}) {
  return post(at("/send"), { method, params, checks });
}

/**
 * Return the next part of a large result, or all of it.
 * @param {string} call
 * @param {{pointer?: string, offset?: string, whole?: string}} which
 * @returns {Promise<{result: any, cuts: Record<string, [number, number]>}>}
 */
export function resultPart(call, which) {
  return get(at(`/result?${new URLSearchParams({ call, ...which })}`));
}

/** @param {string} call */
export function stop(call) {
  return post(at("/stop"), { call });
}

/** @param {string} tool @param {any} given @returns {Promise<string[]>} */
export async function check(tool, given) {
  return (await post(at("/check"), { tool, arguments: given })).problems;
}

/** @param {string} tool @param {any} given */
export function texts(tool, given) {
  return post(at("/texts"), { tool, arguments: given });
}

/** @param {string} question @param {"accept" | "decline" | "cancel"} action @param {any} [content] */
export function answer(question, action, content) {
  return post(at("/answer"), { question, action, ...(content === undefined ? {} : { content }) });
}

/** Return the whole text of an entry. @param {number} n */
export async function wholeText(n) {
  const found = await get(at(`/wire?after=${n - 1}&limit=1&whole=true`));
  return found.entries[0]?.text ?? "";
}

/** All that the server has kept of the wire, as lines of JSON. */
export async function recorded() {
  const lines = [];
  for (let after = 0; ; ) {
    const found = await get(at(`/wire?after=${after}&limit=200&whole=true`));
    if (found.entries.length === 0) return lines.join("");
    for (const each of found.entries) lines.push(`${stringify(each)}\n`);
    after = found.entries.at(-1).n;
  }
}

/**
 * Return what was typed for an item before the page was loaded again.
 * @param {string} name
 */
export function draftOf(name) {
  try {
    return parse(sessionStorage.getItem(`draft ${inspection.value?.server} ${name}`) ?? "null");
  } catch {
    return null;
  }
}

/** @param {string} name @param {any} value */
export function keepDraft(name, value) {
  try {
    sessionStorage.setItem(`draft ${inspection.value?.server} ${name}`, stringify(value));
  } catch {
    // The storage is full: the form is kept while the page is open.
  }
}
