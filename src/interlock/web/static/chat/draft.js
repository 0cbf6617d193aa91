// What is written and not sent, for each conversation: kept in the browser until it is sent.

import { signal } from "../shared/view.js";

/** @typedef {{id: string, name: string, bytes: number, type: string, givenAs: "text" | "file" | "name"}} Kept A file at the server. */
/** @typedef {Kept & {key: string, done: number, problem: string, file?: File, request?: XMLHttpRequest}} Attached */
/** @typedef {{content: string, files: Kept[]}} Unsent */
/** @typedef {{text: string, files: Kept[], problem: string, queue: Unsent[]}} Draft `queue`: waits for the end of an answer. */

export const text = signal("");
export const files = signal(/** @type {Attached[]} */ ([]));
/** Why it was not sent; "" if nobody tried. */
export const problem = signal("");

/** The conversation whose draft is shown. @type {string | null | undefined} */
let shown;

/** @param {string | null} id */
const key = (id) => `draft-${id ?? "new"}`;

/** @param {string | null} id @returns {Draft} */
function read(id) {
  const none = { text: "", files: [], problem: "", queue: [] };
  try {
    return { ...none, ...JSON.parse(localStorage.getItem(key(id)) ?? "{}") };
  } catch {
    return none;
  }
}

/** @param {string | null} id @param {Partial<Draft>} changes */
function write(id, changes) {
  const draft = { ...read(id), ...changes };
  if (draft.text || draft.files.length || draft.queue.length) localStorage.setItem(key(id), JSON.stringify(draft));
  else localStorage.removeItem(key(id));
}

/** @param {Attached[]} given @returns {Kept[]} */
export const kept = (given) =>
  given.filter((each) => each.id).map(({ id, name, bytes, type, givenAs }) => ({ id, name, bytes, type, givenAs }));

/** Keep what the composer has now. */
export function keep() {
  if (shown === undefined) return;
  if (!text.value && !files.value.length) problem.value = "";
  write(shown, { text: text.value, files: kept(files.value), problem: problem.value });
}

/**
 * Show the draft of a conversation. What waited in a queue when the page was closed is part of it.
 * @param {string | null} id
 * @param {string} closed The reason why the queue was not sent.
 */
export function show(id, closed) {
  if (id === shown) return;
  shown = id;
  const { queue, ...draft } = read(id);
  text.value = draft.text;
  files.value = draft.files.map(attached);
  problem.value = draft.problem;
  if (queue.length) giveBack(id, queue, closed);
}

/** The conversation that is shown gets its id. @param {string} id */
export function move(id) {
  const draft = read(null);
  localStorage.removeItem(key(null));
  write(id, draft);
  shown = id;
}

/** @param {string | null} id @param {Unsent[]} queue */
export function keepQueue(id, queue) {
  write(id, { queue });
}

/**
 * Put messages that were not sent before what has been written since.
 * @param {string | null} id
 * @param {Unsent[]} unsent
 * @param {string} reason
 */
export function giveBack(id, unsent, reason) {
  const draft = id === shown ? { text: text.value, files: kept(files.value) } : read(id);
  const words = [...unsent.map((each) => each.content), draft.text].filter(Boolean).join("\n\n");
  const all = [...unsent.flatMap((each) => each.files), ...draft.files];
  write(id, { text: words, files: all, problem: reason, queue: [] });
  if (id !== shown) return;
  text.value = words;
  const others = files.value.filter((each) => !each.id); // are on their way
  files.value = [...all.map(attached), ...others];
  problem.value = reason;
}

/** @param {Kept} file @returns {Attached} */
const attached = (file) => ({ ...file, key: file.id, done: 1, problem: "" });
