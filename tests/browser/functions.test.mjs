// Functions of the pages that need no browser. `test_functions.py` runs this file with Node.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { getElementById: () => null };
globalThis.localStorage = { getItem: () => null };
const STATIC = new URL("../../src/interlock/web/static/", import.meta.url);
const load = (name) => import(new URL(name, STATIC));
const { tokensOf } = await load("shared/code.js");
const { ago, duration, size, span } = await load("shared/format.js");
const { wordsOf } = await load("shared/words.js");
const { marked } = await load("shared/marks.js");
const { outcomeOf } = await load("shared/outcomes.js");
const { Conversation } = await load("chat/view.js");
const { changes } = await load("board/changes.js");

const parts = (text, language) =>
  tokensOf(text, language).map(([kind, from, to]) => `${kind} ${text.slice(from, to)}`);

test("code has a colour for each kind of part", () => {
  assert.deepEqual(parts('def f(x): # hi\n  return "a", 0x1f', "py"), [
    "keyword def", "name f", "comment # hi", "keyword return", 'string "a"', "number 0x1f",
  ]);
  assert.deepEqual(parts('"""one\ntwo"""', "python"), ['string """one\ntwo"""']);
  assert.deepEqual(parts('{"a": "b", "c": [1, null]}', "json"), [
    'name "a"', 'string "b"', 'name "c"', "number 1", "keyword null",
  ]);
  assert.deepEqual(parts("select 1 -- x", "sql"), ["keyword select", "number 1", "comment -- x"]);
  assert.deepEqual(parts("+a\n b\n-c", "diff"), ["added +a", "removed -c"]);
  assert.deepEqual(parts("if (x) {}", "unknown"), []);
});

test("no text makes colouring slow", () => {
  const units = ['"', "'", "`", "/*", "a", "a-", "<!--", " -", "- - ", "0", "[", "\\", '"\\', ":", " \n"];
  for (const unit of units) {
    const before = process.cpuUsage();
    for (const language of ["js", "py", "sh", "sql", "json", "yaml", "css", "html"]) {
      tokensOf(unit.repeat(50_000 / unit.length), language);
    }
    const { user } = process.cpuUsage(before);
    assert.ok(user < 2_000_000, `${JSON.stringify(unit)}: ${user / 1000} ms`); // quadratic: 7 s
  }
});

test("coloured parts follow one another", () => {
  const pieces = ['"', "'", "`", "\\", "\n", "/*", "*/", "//", "#", "<", ">", "a(", "if ", "1.5", ": "];
  let state = 1;
  const next = (below) => (state = (state * 48271) % 2147483647) % below;
  for (let made = 0; made < 500; made += 1) {
    const text = Array.from({ length: 40 }, () => pieces[next(pieces.length)]).join("");
    for (const language of ["js", "py", "sh", "sql", "json", "yaml", "css", "html", "diff"]) {
      let last = 0;
      for (const [, from, to] of tokensOf(text, language)) {
        assert.ok(from >= last && to > from && to <= text.length, JSON.stringify([language, text]));
        last = to;
      }
    }
  }
});

test("durations, sizes and times are as people read them", () => {
  assert.deepEqual([null, 1.23, 318.4, 4_800, 125_000].map(duration), ["–", "1.2 ms", "318 ms", "4.8 s", "2 min 5 s"]);
  assert.deepEqual([0, 3_600_000, 90_061_000].map(span), ["0 s", "1 h", "1 d 1 h"]);
  assert.deepEqual([512, 2_048, 3_500_000].map(size), ["512 bytes", "2.0 KB", "3.3 MB"]);
  assert.equal(ago(0, 540_000), "9 min ago");
  assert.equal(ago(86_400_000 * 3, 0), "in 3 d");
});

test("a sentence has the form for its number, and keeps what it is not given", () => {
  const t = wordsOf({ calls: { one: "{n} call", other: "{n} calls of {tool}" } });
  assert.equal(t("calls", { n: 1 }), "1 call");
  assert.equal(t("calls", { n: 1200 }), "1,200 calls of {tool}");
});

test("hidden characters of a text are marks", () => {
  const shown = marked("a\u202Eb\u{E0041}c").map((each) => each.props?.children ?? each);
  assert.deepEqual(shown, ["a", "U+202E", "b", "U+E0041", "c"]);
});

test("the outcome of a record follows from its status and reason", () => {
  const outcomes = { asked: "asking", ok: "ran", timeout: "failed", cancelled: "stopped", denied: "refused" };
  for (const [status, outcome] of Object.entries(outcomes)) assert.equal(outcomeOf(status, ""), outcome);
  assert.equal(outcomeOf("denied", "tool_quarantined"), "held");
  assert.equal(outcomeOf("denied", "queue_timeout"), "limited");
});

/** A conversation whose gaps are counted. */
function conversation() {
  const made = new Conversation("c1");
  made.gaps = 0;
  made.onGap = () => (made.gaps += 1);
  return made;
}
const event = (seq, type, more = {}) => ({ seq, type, turn_id: "t1", ...more });

test("an event that comes twice is shown once, and one that is missing is asked for", () => {
  const made = conversation();
  made.take(event(1, "started", { content: "hi", message_id: "m1" }));
  made.take(event(2, "token", { content: "a" }));
  made.take(event(2, "token", { content: "a" }));
  made.take(event(4, "token", { content: "c" }));
  assert.equal(made.gaps, 1);
  made.take(event(4, "token", { content: "bc", from: 3 }));
  const [said, reply] = made.items.value;
  assert.equal(said.content, "hi");
  assert.equal(reply.parts.value[0].text.text, "abc");
});

test("at most 300 messages are drawn, at the end or where the reader is", async () => {
  const made = conversation();
  for (let n = 0; n < 500; n += 1) {
    made.take(event(2 * n + 1, "started", { content: `${n}`, message_id: `m${n}`, turn_id: `t${n}`, seq: 1 }));
    made.take(event(2, "complete", { stop_reason: "end", turn_id: `t${n}` }));
    const { from, to } = made.range.value;
    assert.ok(to - from <= 300 && to === made.items.value.length);
  }
  for (let n = 0; n < 40; n += 1) await made.showOlder();
  assert.deepEqual(made.range.value, { from: 0, to: 300 });
  made.take(event(1, "started", { content: "new", message_id: "m", turn_id: "t" }));
  assert.deepEqual(made.range.value, { from: 0, to: 300 });
  for (let n = 0; n < 40; n += 1) made.showNewer();
  assert.ok(made.isAtEnd);
  made.showEnd();
  assert.ok(made.range.value.to - made.range.value.from <= 60);
});

test("differences are as few as possible and contain both texts", () => {
  const said = (before, after) => changes(before, after, true).map(({ kind, value }) => `${kind[0]} ${value}`);
  assert.deepEqual(said("Read a note.", "Read every note."), ["s Read ", "r a", "a every", "s  note."]);
  assert.deepEqual(said("", "new"), ["a new"]);
  assert.deepEqual(changes("a\nb\nc", "a\nc", false).map(({ kind }) => kind), ["same", "removed", "same"]);
  let state = 7;
  const next = (below) => (state = (state * 48271) % 2147483647) % below;
  const text = () => Array.from({ length: next(12) }, () => "ab \n"[next(4)]).join("");
  for (let made = 0; made < 2_000; made += 1) {
    const [before, after] = [text(), text()];
    const parts = changes(before, after, made % 2 === 0);
    const side = (kind) => parts.filter((each) => each.kind !== kind).map((each) => each.value).join("");
    assert.equal(side("added"), before);
    assert.equal(side("removed"), after);
    assert.ok(parts.every((each, at) => each.value !== "" && each.kind !== parts[at + 1]?.kind));
  }
  // The longest common part, by counting, for characters that are words of their own.
  for (let made = 0; made < 200; made += 1) {
    const [before, after] = [text(), text()].map((each) => each.replace(/\s/g, ",").replace(/\w/g, "."));
    const counts = Array.from({ length: before.length + 1 }, () => Array(after.length + 1).fill(0));
    for (let i = 1; i <= before.length; i += 1)
      for (let j = 1; j <= after.length; j += 1)
        counts[i][j] = before[i - 1] === after[j - 1] ? counts[i - 1][j - 1] + 1 : Math.max(counts[i - 1][j], counts[i][j - 1]);
    const kept = changes(before, after, true).filter((each) => each.kind === "same").map((each) => each.value).join("");
    assert.equal(kept.length, counts[before.length][after.length]);
  }
});

test("texts that have nothing in common do not freeze the page", () => {
  const words = (from) => Array.from({ length: 30_000 }, (_, at) => `${from}${at}`).join("\n");
  const before = process.cpuUsage();
  const parts = changes(words("a"), words("b"), false);
  assert.ok(process.cpuUsage(before).user < 2_000_000);
  assert.deepEqual(parts.map(({ kind }) => kind), ["removed", "added"]);
});
