// Messages before and after those that are loaded, of a conversation too long to be loaded at once.

import { ApiError, get } from "../shared/api.js";
import { batch, signal } from "../shared/view.js";
import { itemsOf } from "./view.js";

/** @typedef {import("./view.js").Conversation} Conversation */
/** @typedef {import("./view.js").Item} Item */

/** @param {Conversation} conversation */
export function loadOlder(conversation) {
  const before = conversation.before.value;
  if (before === null) return Promise.resolve();
  return load(conversation, `before=${before}`, (page) => {
    if (before !== conversation.before.value) return;
    const items = joined(itemsOf(page.items, conversation.cards), conversation.items.value);
    const more = items.length - conversation.items.value.length;
    const { from, to } = conversation.range.value;
    conversation.items.value = items;
    conversation.range.value = { from: from + more, to: to + more };
    conversation.before.value = page.before;
  });
}

/** @param {Conversation} conversation */
export function loadNewer(conversation) {
  const after = conversation.after.value;
  if (after === null) return Promise.resolve();
  return load(conversation, `after=${after}`, (page) => {
    if (after !== conversation.after.value) return;
    conversation.items.value = [...conversation.items.value, ...itemsOf(page.items, conversation.cards)];
    conversation.after.value = page.after;
    if (page.after === null) conversation.onTail(page.turn);
  });
}

/** @param {Conversation} conversation @param {string} query @param {(page: any) => void} take */
async function load(conversation, query, take) {
  if (conversation.isLoadingMore) return;
  conversation.isLoadingMore = true;
  try {
    const page = await get(`/api/conversations/${conversation.id.value}/messages?${query}`);
    batch(() => take(page));
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // scrolling tries again
  } finally {
    conversation.isLoadingMore = false;
  }
}

/**
 * Return older items before newer ones. A reply that a page has cut is one again.
 * @param {Item[]} older
 * @param {Item[]} newer
 */
function joined(older, newer) {
  const last = older[older.length - 1];
  const [first, ...rest] = newer;
  if (last?.kind !== "reply" || first?.kind !== "reply" || !last.parts || !first.parts) {
    return [...older, ...newer];
  }
  const parts = signal([...last.parts.value, ...first.parts.value]);
  return [...older.slice(0, -1), { ...first, parts }, ...rest];
}
