// One conversation as the page shows it: what is stored, and the events of the turn under way.

import { ApiError, get } from "../shared/api.js";
import { parse } from "../shared/exact.js";
import { batch, signal } from "../shared/view.js";

/** @typedef {import("../shared/outcomes.js").Outcome} Outcome */
/** @typedef {import("../shared/socket.js").Frame} Frame */
/** @typedef {{input_tokens: number, output_tokens: number, cost?: number}} Usage */

/**
 * @typedef {object} Approval
 * @property {string} id
 * @property {string} hash
 * @property {string} reason
 * @property {string} rule
 * @property {string} risk
 * @property {string[]} approvers
 * @property {string} expires
 * @property {number} shown When it appeared on this page.
 */

/**
 * @typedef {object} Card
 * @property {string} key The model's id of the call.
 * @property {string | null} id Of the call; null for one that was never recorded.
 * @property {Outcome} state
 * @property {string} tool
 * @property {any} arguments
 * @property {string} result The text that the model got.
 * @property {boolean} truncated
 * @property {string} reason
 * @property {number | null} seconds
 * @property {number} started When this page saw it start; 0 for a stored call.
 * @property {{progress: number, total?: number, message: string} | null} progress
 * @property {Approval | null} approval While it is open.
 * @property {{state: string, by: string, at: string} | null} decided
 * @property {boolean} hasResult The server has the whole result.
 */

/**
 * @typedef {object} Question
 * @property {string} key
 * @property {string} server
 * @property {"form" | "url" | "sampling"} mode
 * @property {string} message
 * @property {any} [schema]
 * @property {string} [url]
 * @property {string} expires
 * @property {string} action "" while it is open.
 */

/**
 * @typedef {object} Part A piece of a reply.
 * @property {"text" | "reasoning" | "notice" | "call" | "question"} kind
 * @property {string} key
 * @property {Growing} [text]
 * @property {string} [content] Of a notice.
 * @property {import("../vendor/signals.js").Signal<Card>} [card]
 * @property {import("../vendor/signals.js").Signal<Question>} [question]
 */

/**
 * @typedef {object} Item
 * @property {"user" | "reply" | "note"} kind
 * @property {string} key
 * @property {number | null} [id] Position of the message in the conversation.
 * @property {string} [content]
 * @property {any[]} [files]
 * @property {boolean} [isWaiting] It was not sent yet.
 * @property {string} [turn]
 * @property {string} [model]
 * @property {import("../vendor/signals.js").Signal<Part[]>} [parts]
 * @property {"stopped" | "length" | "error" | "model"} [note]
 * @property {string} [code]
 */

const MOST = 300; // items that are drawn at once
const STEP = 30; // items by which the drawn part moves

/** A text that grows. What shows it is called with each piece. */
export class Growing {
  /** @param {string} [text] */
  constructor(text = "") {
    this.text = text;
    this.hasEnded = text !== "";
    /** @type {((piece: string | null) => void) | null} Called with null at the end. */
    this.show = null;
  }

  /** @param {string} piece */
  append(piece) {
    this.text += piece;
    this.show?.(piece);
  }

  end() {
    this.hasEnded = true;
    this.show?.(null);
  }
}

const history = () => import("./history.js"); // only long conversations need it

let keys = 0;
const nextKey = () => `k${(keys += 1)}`;

export class Conversation {
  /**
   * @param {string | null} id Null for one that does not exist yet.
   * @param {string} [model] What answers in a new one.
   */
  constructor(id, model = "") {
    this.default = model;
    this.id = signal(id);
    this.title = signal("");
    this.model = signal("");
    this.tools = signal(/** @type {Record<string, string>} */ ({}));
    this.branches = signal(/** @type {{id: string, parent: string | null, at: number | null}[]} */ ([]));
    this.items = signal(/** @type {Item[]} */ ([]));
    /** The part of the items that is drawn; `to` is the index after its last one. */
    this.range = signal({ from: 0, to: 0 });
    /** Whether the transcript stays at its end. */
    this.follows = true;
    /** Position of the oldest loaded message; null if it is the first. */
    this.before = signal(/** @type {number | null} */ (null));
    /** Position after the newest loaded message; null at the end. */
    this.after = signal(/** @type {number | null} */ (null));
    /** Position of the message to show: null for the end, -1 for the beginning. */
    this.at = /** @type {number | null} */ (null);
    /** How often messages were loaded in place of those that were shown. */
    this.loads = signal(0);
    this.turn = signal(/** @type {{id: string, state: "running" | "waiting"} | null} */ (null));
    this.interrupted = signal(false);
    this.error = signal(/** @type {ApiError | null} */ (null));
    this.isLoaded = signal(id === null);
    /** What was done in the whole conversation. */
    this.done = signal({ answers: 0, calls: 0 });
    /** The tokens of the last answer. */
    this.last = signal(/** @type {Usage | null} */ (null));
    /** The tokens of the whole conversation by model. */
    this.used = signal(/** @type {{model: string, usage: Usage, cost: number | null}[]} */ ([]));
    /** What was typed while a turn ran, to be sent after it. */
    this.queue = signal(/** @type {{content: string, files: any[]}[]} */ ([]));
    /** What just happened, for screen readers. */
    this.said = signal("");
    this.seq = 0;
    this.turnId = "";
    /** @type {(() => void)} Called when the page has missed something. */
    this.onGap = () => {};
    /** @type {((turn: any) => void)} Called when the page has reached the end of what is stored. */
    this.onTail = () => {};
    /** @type {(() => void)} Called after a turn. */
    this.onEnd = () => {};
    /** @type {((unsent: import("./draft.js").Unsent, reason: string) => void)} Called with a message of a turn that did not store it. */
    this.onUnsent = () => {};
    /** Ids of the messages that were sent here. */
    this.sentHere = new Set();
    /** The message that the turn answers. */
    this.asked = "";
    /** @type {Map<string, import("../vendor/signals.js").Signal<Card>>} */
    this.cards = new Map();
    /** @type {Map<string, import("../vendor/signals.js").Signal<Question>>} */
    this.questions = new Map();
    /** @type {Map<string, string>} Keys of cards by approval. */
    this.approvals = new Map();
    this.loading = 0;
    this.isLoadingMore = false;
    /** How often the person chose something that the server keeps. */
    this.choices = 0;
  }

  // What is stored

  /** Load the conversation and its last messages; return the turn to follow, if there is one. */
  async load() {
    const id = this.id.value;
    if (id === null) return null;
    const mine = (this.loading += 1);
    const { at } = this;
    try {
      const [about, page] = await Promise.all([
        get(`/api/conversations/${id}`),
        get(`/api/conversations/${id}/messages${at === null ? "" : `?after=${Math.max(0, at - STEP)}`}`),
      ]);
      if (mine !== this.loading) return null;
      batch(() => {
        this.#describe(about);
        this.cards.clear();
        this.questions.clear();
        this.items.value = itemsOf(page.items, this.cards);
        this.after.value = page.after;
        this.showEnd();
        if (at !== null) this.range.value = { from: 0, to: this.items.value.length };
        this.before.value = page.before;
        this.loads.value += 1;
        this.turn.value = page.turn;
        this.interrupted.value = Boolean(page.interrupted);
        this.error.value = null;
        this.isLoaded.value = true;
      });
      return page.turn;
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (mine === this.loading) this.error.value = error;
      return null;
    }
  }

  /** Load what is known beside the messages again. */
  async refresh() {
    const id = this.id.value;
    if (id === null) return;
    const before = this.choices;
    try {
      const about = await get(`/api/conversations/${id}`);
      if (before !== this.choices) return; // it is older than what the person chose
      this.#describe(about);
      this.#put(this.items.value.map((each) => (each.model === "" ? { ...each, model: this.model.value } : each)));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error; // what is shown stays
    }
  }

  /** @param {any} about */
  #describe(about) {
    this.title.value = about.title;
    this.model.value = about.model;
    this.tools.value = about.settings.tools ?? {};
    this.branches.value = about.branches;
    this.used.value = about.usage;
    this.done.value = { answers: about.answers, calls: about.calls };
  }

  /** Draw older items. They are loaded when all that the page has are drawn. */
  async showOlder() {
    if (this.range.value.from === 0) await (await history()).loadOlder(this);
    const { from, to } = this.range.value;
    if (from === 0) return;
    const first = Math.max(0, from - STEP);
    this.range.value = { from: first, to: Math.min(to, first + MOST) };
  }

  /** Draw newer items. They are loaded when all that the page has are drawn. */
  async showNewer() {
    if (this.range.value.to === this.items.value.length && !this.isAtEnd) await (await history()).loadNewer(this);
    const { from, to } = this.range.value;
    const last = Math.min(this.items.value.length, to + STEP);
    if (last === to) return;
    this.range.value = { from: Math.max(from, last - MOST), to: last };
  }

  /** Draw the first items. */
  showStart() {
    this.range.value = { from: 0, to: Math.min(2 * STEP, this.items.value.length) };
  }

  /** Draw the last items. */
  showEnd() {
    const to = this.items.value.length;
    this.range.value = { from: Math.max(0, to - 2 * STEP), to };
  }

  get isAtEnd() {
    return this.range.value.to === this.items.value.length && this.after.value === null;
  }

  /**
   * Replace the items; those that were added at the end are drawn if the end was.
   * @param {Item[]} items
   */
  #put(items) {
    const { isAtEnd } = this;
    const { from, to } = this.range.value;
    batch(() => {
      this.items.value = items;
      if (!isAtEnd && to <= items.length) return;
      const last = items.length;
      this.range.value = { from: last - from > MOST ? last - MOST + STEP : Math.min(from, last), to: last };
    });
  }

  // What happens

  /**
   * Show a message that was just sent.
   * @param {string} messageId
   * @param {string} content
   * @param {any[]} files
   */
  sent(messageId, content, files) {
    /** @type {Item} */
    const item = { kind: "user", key: messageId, id: null, content, files, isWaiting: true };
    this.sentHere.add(messageId);
    this.#put([...this.items.value, item]);
    this.follows = true;
    this.showEnd();
    this.interrupted.value = false;
  }

  /**
   * Remove a message that was not sent.
   * @param {string} messageId
   */
  takeBack(messageId) {
    this.#put(this.items.value.filter((each) => each.key !== messageId));
  }

  /**
   * Take an event of a turn.
   * @param {Frame} event
   */
  take(event) {
    if (this.after.value !== null) return; // the end is loaded before it is shown
    if (event.turn_id !== this.turnId) {
      if (event.type !== "started") {
        this.onGap();
        return;
      }
      this.turnId = event.turn_id;
      this.seq = 0;
    }
    const first = event.from ?? event.seq;
    if (event.seq <= this.seq) return;
    if (first !== this.seq + 1) {
      this.onGap();
      return;
    }
    this.seq = event.seq;
    batch(() => this.#apply(event));
  }

  /** @param {Frame} event */
  #apply(event) {
    switch (event.type) {
      case "started":
        this.#started(event);
        break;
      case "token":
        this.#text("text").append(event.content);
        break;
      case "reasoning":
        this.#text("reasoning").append(event.content);
        break;
      case "notice":
        this.#add({ kind: "notice", key: nextKey(), content: event.content });
        break;
      case "tool_start":
        this.#called(event);
        break;
      case "tool_progress":
        this.#change(event.tool_call_id, {
          progress: { progress: event.progress, total: event.total, message: event.message },
        });
        break;
      case "tool_complete":
        this.#completed(event);
        break;
      case "approval":
        this.#asked(event);
        break;
      case "approval_done":
        this.#decided(event);
        break;
      case "question":
        this.#questioned(event);
        break;
      case "question_done": {
        const question = this.questions.get(event.question_id);
        if (question) question.value = { ...question.value, action: event.action };
        this.#is("running");
        break;
      }
      case "complete":
      case "error":
        this.#ended(event);
        break;
      default: // of a newer server
    }
  }

  /** @param {Frame} event */
  #started(event) {
    this.asked = event.message_id ?? "";
    const items = this.items.value.map((each) =>
      each.key === event.message_id ? { ...each, isWaiting: false } : each,
    );
    if (event.content !== undefined && !items.some((each) => each.key === event.message_id)) {
      const key = event.message_id ?? nextKey();
      const files = (event.files ?? []).map((/** @type {string} */ id) => ({ id, name: id }));
      items.push({ kind: "user", key, id: null, content: event.content, files });
    }
    const model = event.model || this.model.value || this.default;
    const last = items.findLast((each) => each.kind === "reply");
    // A reply to a message that was sent before the models were known is the default's.
    const before = last && (last.model || this.default);
    if (before && model && before !== model) {
      items.push({ kind: "note", key: nextKey(), note: "model", content: model });
    }
    items.push({ kind: "reply", key: event.turn_id, turn: event.turn_id, model, parts: signal([]) });
    this.#put(items);
    this.turn.value = { id: event.turn_id, state: "running" };
    this.interrupted.value = false;
  }

  /** The parts of the reply under way. */
  get #parts() {
    const items = this.items.value;
    const last = items[items.length - 1];
    if (last?.kind === "reply" && last.parts) return last.parts;
    const parts = signal(/** @type {Part[]} */ ([]));
    this.#put([...items, { kind: "reply", key: nextKey(), parts }]);
    return parts;
  }

  /** @param {Part} part */
  #add(part) {
    const parts = this.#parts;
    parts.value[parts.value.length - 1]?.text?.end();
    parts.value = [...parts.value, part];
  }

  /** @param {"text" | "reasoning"} kind */
  #text(kind) {
    const parts = this.#parts.value;
    const last = parts[parts.length - 1];
    if (last?.kind === kind && last.text) return last.text;
    const text = new Growing();
    this.#add({ kind, key: nextKey(), text });
    return text;
  }

  /** @param {Frame} event */
  #called(event) {
    const card = signal(
      newCard({
        key: event.tool_call_id,
        id: event.call_id,
        state: "running",
        tool: event.tool_name,
        arguments: parsed(event.tool_input),
        started: new Date(event.timestamp).getTime(),
      }),
    );
    this.cards.set(event.tool_call_id, card);
    this.#add({ kind: "call", key: event.call_id || nextKey(), card });
    this.done.value = { ...this.done.value, calls: this.done.value.calls + 1 };
  }

  /** @param {string} key @param {Partial<Card>} changes */
  #change(key, changes) {
    const card = this.cards.get(key);
    if (card) card.value = { ...card.value, ...changes };
    return card?.value;
  }

  /** @param {Frame} event */
  #completed(event) {
    const card = this.#change(event.tool_call_id, {
      state: event.outcome ?? (event.is_error ? "failed" : "ran"),
      result: event.tool_result,
      truncated: Boolean(event.truncated),
      reason: event.reason ?? "",
      seconds: event.seconds,
      progress: null,
      approval: null,
      hasResult: Boolean(event.call_id),
    });
    if (card) this.said.value = `${card.tool}|${card.state}`;
  }

  /** @param {Frame} event */
  #asked(event) {
    let key = event.tool_call_id;
    if (!this.cards.has(key)) {
      key = key || event.approval_id;
      this.#called({ ...event, tool_call_id: key, timestamp: new Date().toISOString() });
    }
    this.approvals.set(event.approval_id, key);
    this.#change(key, {
      state: "asking",
      arguments: parsed(event.tool_input),
      approval: {
        id: event.approval_id,
        hash: event.hash,
        reason: event.reason,
        rule: event.rule ?? "",
        risk: event.risk ?? "write",
        approvers: event.approvers ?? ["caller"],
        expires: event.expires,
        shown: performance.now(),
      },
    });
    this.said.value = `${event.tool_name}|asking`;
    this.#is("waiting");
  }

  /** @param {Frame} event */
  #decided(event) {
    const key = this.approvals.get(event.approval_id) ?? "";
    this.#change(key, {
      state: event.state === "approved" || event.state === "closed" ? "running" : "refused",
      approval: null,
      decided: event.state === "closed" ? null : { state: event.state, by: event.by, at: event.timestamp },
    });
    const waits = [...this.cards.values()].some((each) => each.value.approval !== null);
    this.#is(waits ? "waiting" : "running");
  }

  /** @param {Frame} event */
  #questioned(event) {
    const question = signal(
      /** @type {Question} */ ({
        key: event.question_id,
        server: event.server,
        mode: event.mode,
        message: event.message,
        schema: event.schema,
        url: event.url,
        expires: event.expires,
        action: "",
      }),
    );
    this.questions.set(event.question_id, question);
    this.#add({ kind: "question", key: event.question_id, question });
    this.said.value = `${event.server}|question`;
    this.#is("waiting");
  }

  /** @param {Frame} event */
  #ended(event) {
    const parts = this.#parts;
    parts.value[parts.value.length - 1]?.text?.end();
    for (const question of this.questions.values()) {
      if (!question.value.action) question.value = { ...question.value, action: "cancel" };
    }
    const items = [...this.items.value];
    const unsent = items.find((each) => each.key === this.asked && this.sentHere.has(each.key));
    if (event.type === "error" && event.position === undefined && unsent) {
      items.splice(items.indexOf(unsent)); // with the reply, which is empty
      this.onUnsent({ content: unsent.content ?? "", files: unsent.files ?? [] }, event.message);
    } else if (event.type === "error") {
      items.push({ kind: "note", key: nextKey(), note: "error", code: event.code, content: event.message });
    } else if (event.stop_reason !== "end") {
      items.push({ kind: "note", key: nextKey(), note: event.stop_reason });
    }
    const asked = [...items].reverse().find((each) => each.kind === "user");
    if (asked && typeof event.position === "number") {
      items[items.indexOf(asked)] = { ...asked, id: event.position };
    }
    this.#put(items);
    this.turn.value = null;
    this.done.value = { ...this.done.value, answers: this.done.value.answers + 1 };
    this.last.value = event.usage?.input_tokens === undefined ? null : event.usage;
    this.said.value = event.type === "error" ? "|error" : `|${event.stop_reason}`;
    this.onEnd();
  }

  /** @param {"running" | "waiting"} state */
  #is(state) {
    if (this.turn.value) this.turn.value = { ...this.turn.value, state };
  }
}

/**
 * @param {Partial<Card> & {key: string, tool: string, state: Outcome}} given
 * @returns {Card}
 */
function newCard(given) {
  return {
    id: null,
    arguments: {},
    result: "",
    truncated: false,
    reason: "",
    seconds: null,
    started: Date.now(),
    progress: null,
    approval: null,
    decided: null,
    hasResult: false,
    ...given,
  };
}

/**
 * Return stored messages as items: the messages of the model between two of the person are one.
 * @param {any[]} stored
 * @param {Map<string, import("../vendor/signals.js").Signal<Card>>} cards
 */
export function itemsOf(stored, cards) {
  /** @type {Item[]} */
  const items = [];
  let model = "";
  for (const each of stored) {
    if (each.role === "user") {
      const { content, files, id } = each;
      items.push({ kind: "user", key: `m${id}`, id, content, files });
      continue;
    }
    let last = items[items.length - 1];
    if (last?.kind !== "reply") {
      if (model && each.model && each.model !== model) {
        items.push({ kind: "note", key: `s${each.id}`, note: "model", content: each.model });
      }
      model = each.model || model;
      last = { kind: "reply", key: `m${each.id}`, id: each.id, model: each.model, parts: signal([]) };
      items.push(last);
    }
    const parts = /** @type {any} */ (last.parts).value;
    if (each.unfinished) {
      const { code, message } = each.unfinished;
      const why = code === "stopped" ? { note: code } : { note: "error", code, content: message };
      items.push({ kind: "note", key: `u${each.id}`, .../** @type {any} */ (why) });
    }
    if (each.content) parts.push({ kind: "text", key: `t${each.id}`, text: new Growing(each.content) });
    for (const call of each.calls) {
      const card = signal(
        newCard({
          key: call.tool_call_id,
          id: call.call_id,
          state: call.outcome,
          tool: call.tool,
          arguments: call.arguments,
          result: call.result,
          truncated: call.truncated,
          reason: call.reason,
          seconds: call.seconds,
          decided: call.approval,
          started: 0,
          hasResult: Boolean(call.hasResult),
        }),
      );
      cards.set(call.tool_call_id, card);
      parts.push({ kind: "call", key: call.call_id ?? `c${each.id}-${call.tool_call_id}`, card });
    }
  }
  return items;
}

/** @param {string} text */
function parsed(text) {
  try {
    return parse(text);
  } catch {
    return text;
  }
}
