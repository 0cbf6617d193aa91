// What the whole page knows: the conversations, the one that is shown, and the connection.

import { ApiError, get, pageKey, post, request } from "../shared/api.js";
import { sentence } from "../shared/load.js";
import { page } from "../shared/page.js";
import { go, place } from "../shared/route.js";
import { Connection } from "../shared/socket.js";
import { signal } from "../shared/view.js";
import { giveBack, keepQueue, move } from "./draft.js";
import { Conversation } from "./view.js";

/** @typedef {{id: string, title: string, model: string, updated: string, state: string, messages: number, hit?: number}} Listed */

export const list = signal(/** @type {Listed[]} */ ([]));
export const listed = signal(false);
export const after = signal(/** @type {string | null} */ (null));
export const query = signal("");
export const found = signal(/** @type {Listed[] | null} */ (null));
export const models = signal(/** @type {string[]} */ ([]));
export const servers = signal(/** @type {{name: string, state: string, reason: string, tools: number}[]} */ ([]));
/** @typedef {{address: string, title: string, description: string, tokens: number, readOnly: boolean, repeatable: boolean, app: boolean}} Tool */
export const tools = signal(/** @type {Tool[]} */ ([]));
export const known = signal(false);
export const current = signal(new Conversation(null));
/** Settings of a conversation that does not exist yet. */
export const chosenModel = signal("");

export const connection = new Connection(receive);
connection.ready = () => {
  connection.send({ type: "watch", topic: "conversations" });
  void loadList();
  if (!known.value && !isLoadingOffers) void loadOffers();
  if (sending.size === 0) {
    void resume();
    sendNext(current.value);
  }
  // The server runs a message once, whatever it has received of it before.
  for (const { frame } of sending.values()) connection.send(frame);
  for (const frame of unanswered.values()) connection.send(frame);
};

/** @param {import("../shared/socket.js").Frame} frame */
function receive(frame) {
  const conversation = current.value;
  if (frame.type === "update") {
    changed(frame.data);
    return;
  }
  if (frame.type === "error" && frame.seq === undefined) {
    const refused = sending.get(frame.message_id);
    sending.delete(frame.message_id);
    if (arrivedBefore(frame)) return;
    if (refused) returned(refused, frame.message);
    else problem.value = frame.message;
    sendNext(current.value);
    return;
  }
  if (frame.type === "snapshot") {
    // Messages are read over HTTP. A server that was started again has none of the turns of the page.
    const isLost = conversation.turn.value !== null && frame.turn_id !== conversation.turnId;
    if (!isLost || frame.conversation_id !== conversation.id.value) return;
    gapped.add(conversation);
    void resume();
    return;
  }
  if (frame.type === "approval_done" || frame.type === "question_done") unanswered.delete(asked(frame));
  const sent = frame.type === "started" ? sending.get(frame.message_id)?.frame : undefined;
  if (sent) sending.delete(frame.message_id);
  if (sent && conversation.id.value === null) arrived(conversation, frame.conversation_id);
  if (sent?.replaces !== undefined) {
    go(`/c/${frame.conversation_id}`);
    return;
  }
  if (frame.conversation_id === conversation.id.value) conversation.take(frame);
  if (sent) sendNext(current.value); // of another conversation that was opened meanwhile
}

/** A sentence about the last thing that was refused. */
export const problem = signal("");
/** @typedef {{frame: import("../shared/socket.js").Frame, files: any[]}} Sent */
/** @type {Map<string, Sent>} Messages whose turn has not started. */
const sending = new Map();

/**
 * Put a message that was refused back into the composer, with what waited behind it.
 * @param {Sent} sent
 * @param {string} reason
 */
function returned({ frame, files }, reason) {
  const conversation = current.value;
  const id = frame.conversation_id ?? null;
  const unsent = { content: frame.content, files };
  if (conversation.id.value !== id) {
    giveBack(id, [unsent], reason);
    return;
  }
  conversation.takeBack(frame.message_id);
  notStored(conversation, unsent, reason);
}

/** @param {Conversation} conversation @param {import("./draft.js").Unsent} unsent @param {string} reason */
function notStored(conversation, unsent, reason) {
  const behind = conversation.queue.value;
  conversation.queue.value = [];
  giveBack(conversation.id.value, [unsent, ...behind], reason);
}

/** @param {Conversation} conversation @param {{content: string, files: any[]}[]} queue */
export function setQueue(conversation, queue) {
  conversation.queue.value = queue;
  keepQueue(conversation.id.value, queue);
}

/** Conversations with settings that are made before their first message is sent. */
const creating = new Set();

/** @typedef {import("../shared/socket.js").Frame} Frame */
/** @type {Map<string, Frame>} Decisions and answers that the server has not confirmed, by what was asked. */
const unanswered = new Map();
/** What was decided or answered here. */
const replied = new Set();

/** @param {Frame} frame */
const asked = (frame) => frame.approval_id ?? frame.question_id ?? "";

/**
 * Send a decision or an answer, over the next connection if this one is lost or ends before it arrives.
 * @param {Frame} frame
 */
export function reply(frame) {
  unanswered.set(asked(frame), frame);
  replied.add(asked(frame));
  connection.send(frame);
}

/**
 * Return whether an error only says that what was sent twice had arrived the first time.
 * @param {Frame} error
 */
function arrivedBefore(error) {
  unanswered.delete(asked(error));
  return error.code === "approval_closed" && replied.has(asked(error));
}

/** @param {Conversation} conversation @param {string} id */
function arrived(conversation, id) {
  move(id);
  conversation.id.value = id;
  conversation.isLoaded.value = true;
  go(`/c/${id}`, { replace: true });
  void loadList();
  void conversation.refresh();
}

// Conversations

export async function loadList() {
  try {
    const answer = await get("/api/conversations?limit=50");
    list.value = answer.items;
    after.value = answer.after;
    listed.value = true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

export async function loadMore() {
  await attempt(async () => {
    const answer = await get(`/api/conversations?limit=50&after=${after.value}`);
    list.value = [...list.value, ...answer.items];
    after.value = answer.after;
  });
}

/** @param {{conversation_id: string, state: string, event: string}} data */
function changed(data) {
  if (data.event === "started" || data.event === "complete" || data.event === "error") {
    void loadList();
  }
  if (data.event === "approval" || data.event === "question") {
    dispatchEvent(new CustomEvent("waiting", { detail: data.conversation_id }));
  }
  list.value = list.value.map((each) =>
    each.id === data.conversation_id ? { ...each, state: data.state } : each,
  );
}

let searching = 0;
/** @param {string} text */
export async function search(text) {
  query.value = text;
  const mine = (searching += 1);
  if (!text.trim()) {
    found.value = null;
    return;
  }
  await new Promise((done) => setTimeout(done, 120));
  if (mine !== searching) return;
  await attempt(async () => {
    const answer = await get(`/api/search?q=${encodeURIComponent(text.trim())}`);
    if (mine === searching) found.value = answer.items;
  });
}

/** Show the conversation that the address names. */
export function show() {
  const named = /^\/c\/([\w-]+)$/.exec(place.value.path);
  const id = named?.[1] ?? null;
  const at = new URLSearchParams(place.value.query).get("at");
  if (current.value.id.value === id && id !== null) {
    if (at !== null) void jump(Number(at));
    return;
  }
  const conversation = new Conversation(id);
  if (at !== null) conversation.at = Number(at);
  conversation.onTail = (turn) => follow(conversation, turn);
  conversation.onGap = () => void resume();
  conversation.onEnd = () => ended(conversation);
  conversation.onUnsent = (unsent, reason) => notStored(conversation, unsent, reason);
  current.value = conversation;
  problem.value = "";
  if (id !== null) void resume();
}

/** Show another part of the conversation: around a message, or the end. @param {number | null} at */
export function jump(at) {
  current.value.at = at;
  current.value.turnId = ""; // it is loaded, whatever the server still has of a turn
  if (at === null && place.value.query) go(place.value.path, { replace: true });
  return resume();
}

/** Load what is stored of the conversation, and follow what happens. */
async function resume() {
  const conversation = current.value;
  const id = conversation.id.value;
  if (id === null) return;
  const isSame = conversation.isLoaded.value && conversation.turn.value && conversation.turnId;
  if (isSame && connection.isOpen && !gapped.has(conversation)) {
    // The server may still have what was missed; if not, everything is loaded again.
    gapped.add(conversation);
    const { seq, turnId } = conversation;
    connection.send({ type: "resume", conversation_id: id, turn_id: turnId, after: seq, brief: true });
    setTimeout(() => gapped.delete(conversation), 1000);
    return;
  }
  gapped.delete(conversation);
  const turn = await conversation.load();
  if (conversation === current.value && conversation.after.value === null) follow(conversation, turn);
}

/** @param {Conversation} conversation @param {{id: string, state: "running" | "waiting"} | null} turn */
function follow(conversation, turn) {
  conversation.turn.value = turn;
  conversation.turnId = turn?.id ?? "";
  conversation.seq = 0;
  const from = turn ? { turn_id: turn.id, after: 0 } : { after: 1e9 };
  connection.send({ type: "resume", conversation_id: conversation.id.value, brief: true, ...from });
}
/** @type {WeakSet<Conversation>} */
const gapped = new WeakSet();

/** @param {Conversation} conversation */
function ended(conversation) {
  sendNext(conversation);
  void conversation.refresh();
}

/** Send the first message that waits. @param {Conversation} conversation */
function sendNext(conversation) {
  const [next, ...rest] = conversation.queue.value;
  if (!next || conversation.turn.value || sending.size > 0) return;
  setQueue(conversation, rest);
  say(next.content, next.files);
}

/**
 * Send a message, or put it in the queue while a turn runs.
 * @param {string} content
 * @param {any[]} files
 */
export function say(content, files) {
  const conversation = current.value;
  const isBusy = conversation.turn.value || sending.size > 0 || creating.has(conversation);
  if (conversation.after.value !== null) {
    conversation.queue.value = [...conversation.queue.value, { content, files }];
    void jump(null).then(() => conversation.after.value === null && sendNext(conversation));
    return true;
  }
  if (isBusy || connection.line.value.state === "opening") {
    setQueue(conversation, [...conversation.queue.value, { content, files }]);
    return true;
  }
  if (conversation.id.value === null && Object.keys(conversation.tools.value).length) {
    creating.add(conversation);
    void attempt(() => create(conversation, content)).then((done) => {
      creating.delete(conversation);
      if (done && send(conversation, content, files)) return;
      giveBack(conversation.id.value, [{ content, files }], problem.value);
      problem.value = "";
    });
    return true;
  }
  return send(conversation, content, files);
}

/**
 * Make the conversation before its first message, as its settings hold from then on.
 * @param {Conversation} conversation
 * @param {string} content
 */
async function create(conversation, content) {
  const title = content.replace(/\s+/g, " ").slice(0, 80);
  const states = conversation.tools.value;
  const made = await post("/api/conversations", { title, model: chosenModel.value });
  await request("PATCH", `/api/conversations/${made.id}`, { settings: { tools: states } });
  arrived(conversation, made.id);
}

/** @param {Conversation} conversation @param {string} content @param {any[]} files */
function send(conversation, content, files) {
  const id = `m_${crypto.randomUUID()}`;
  /** @type {import("../shared/socket.js").Frame} */
  const frame = { type: "message", content, message_id: id };
  if (conversation.id.value !== null) frame.conversation_id = conversation.id.value;
  if (files.length) frame.files = files.map((each) => each.id);
  const model = conversation.id.value === null ? chosenModel.value : conversation.model.value;
  if (model) frame.model = model;
  if (!connection.send(frame)) return false;
  sending.set(id, { frame, files });
  conversation.default = chosenModel.value || models.value[0] || "";
  conversation.sent(id, content, files);
  problem.value = "";
  return true;
}

/**
 * Ask again, in a copy of the conversation that ends before a message.
 * @param {number} position
 * @param {string} content
 * @param {any[]} files
 */
export function branch(position, content, files = []) {
  const id = `m_${crypto.randomUUID()}`;
  const frame = {
    type: "message",
    content,
    message_id: id,
    conversation_id: current.value.id.value,
    replaces: position,
    files: files.map((each) => each.id),
  };
  if (connection.send(frame)) sending.set(id, { frame, files });
}

/** Go on with a turn that was interrupted. */
export function goOn() {
  const id = current.value.id.value;
  connection.send({ type: "message", content: "", conversation_id: id, continues: true });
}

export function stop() {
  connection.send({ type: "stop", conversation_id: current.value.id.value });
}

/** @param {string} callId */
export function stopCall(callId) {
  connection.send({ type: "stop", conversation_id: current.value.id.value, call_id: callId });
}

/** @param {string} title */
export async function rename(title) {
  const conversation = current.value;
  await request("PATCH", `/api/conversations/${conversation.id.value}`, { title });
  conversation.title.value = title;
  await loadList();
}

export async function remove() {
  await request("DELETE", `/api/conversations/${current.value.id.value}`);
  go("/");
  await loadList();
}

/** @param {string} name */
export async function chooseModel(name) {
  const conversation = current.value;
  if (conversation.id.value !== null) {
    const before = conversation.model.value;
    conversation.choices += 1;
    conversation.model.value = name; // a message that is sent at once names it
    const path = `/api/conversations/${conversation.id.value}`;
    if (!(await attempt(() => request("PATCH", path, { model: name })))) conversation.model.value = before;
    return;
  }
  chosenModel.value = name;
}

/**
 * Do something that the server may refuse, and say so; return whether it was done.
 * @param {() => Promise<unknown>} work
 */
export async function attempt(work) {
  try {
    await work();
    return true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    problem.value = sentence(error);
    return false;
  }
}

/** @typedef {Record<string, string>} ToolStates By tool or server; none for what the rules say. */

/** @param {string} address */
export const serverOf = (address) => address.split(":")[0] ?? "";

/** Whether a conversation offers a tool to the model. @param {ToolStates} states @param {string} address */
export function isOn(states, address) {
  return (states[address] ?? states[serverOf(address)]) !== "off";
}

/** @param {Conversation} conversation @param {ToolStates} states */
export async function saveTools(conversation, states) {
  conversation.tools.value = states;
  conversation.choices += 1;
  const id = conversation.id.value;
  if (id !== null) {
    await request("PATCH", `/api/conversations/${id}`, { settings: { tools: states } });
  }
}

/** Whether the built-in rules of a person's own machine hold, which "always" may replace. */
export const isLocal = signal(Boolean(page.builtIn));

/** @param {string} name Of a tool, or of a server. @param {string} state "" for the default. */
export async function chooseTool(name, state) {
  const { [name]: _, ...others } = current.value.tools.value;
  return attempt(() => saveTools(current.value, state ? { ...others, [name]: state } : others));
}

/** @param {"json" | "markdown"} form */
export async function download(form) {
  const conversation = current.value;
  const { value: id } = conversation.id;
  const headers = { "X-Interlock-Key": pageKey() ?? "" };
  await attempt(async () => {
    const path = `/api/conversations/${id}/export?as=${form}`;
    const answer = await fetch(path, { headers }).catch(() => null);
    if (!answer?.ok) throw new ApiError(answer?.status ?? 0, answer ? "refused" : "offline", "");
    const { save } = await import("../shared/save.js");
    save(await answer.blob(), `${id}.${form === "json" ? "json" : "md"}`);
  });
}

// What the page needs once

export function begin() {
  connection.open();
  return loadOffers();
}

let isLoadingOffers = false;
/** Load the models, servers and tools. */
async function loadOffers() {
  isLoadingOffers = true;
  try {
    const [offered, up, all] = await Promise.all([
      get("/api/models"),
      get("/api/servers"),
      get("/api/tools"),
    ]);
    models.value = offered.items.map((/** @type {{name: string}} */ each) => each.name);
    servers.value = up.items;
    tools.value = all.items;
    known.value = true;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // tried again with the next connection
  } finally {
    isLoadingOffers = false;
  }
}

export async function checkServers() {
  try {
    const [up, all] = await Promise.all([get("/api/servers"), get("/api/tools")]);
    servers.value = up.items;
    tools.value = all.items;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // what is shown stays
  }
}
