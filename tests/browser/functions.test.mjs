// Functions of the pages that need no browser. `test_functions.py` runs this file with Node.

import assert from "node:assert/strict";
import { test } from "node:test";

globalThis.document = { getElementById: () => null };
globalThis.localStorage = { getItem: () => null };
const STATIC = new URL("../../src/interlock/web/static/", import.meta.url);
const load = (name) => import(new URL(name, STATIC));
const { tokensOf } = await load("shared/code.js");
const { ago, duration, size, span } = await load("shared/format.js");
const { wordsOf } = await load("shared/text.js");
const { marked } = await load("shared/marks.js");
const { outcomeOf } = await load("shared/outcomes.js");
const { Conversation } = await load("chat/view.js");
const { changes } = await load("board/changes.js");
const { isKept, parse, parseAnswer, stringify, typed } = await load("shared/exact.js");
const { foldOf, foldsIn } = await load("shared/fold.js");

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

test("each character that shows nothing is a mark, except newline and tab", () => {
  const signs = /[\u0600-\u0605\u06DD\u070F\u0890\u0891\u08E2\u{110BD}\u{110CD}]/u; // drawn with the digits after them
  for (let code = 0; code < 0x110000; code++) {
    const character = String.fromCodePoint(code);
    const isHidden = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/u.test(character) && !signs.test(character);
    if (isHidden && !"\n\t".includes(character)) assert.notEqual(marked(character)[0], character, code.toString(16));
  }
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

test("JSON keeps the digits of its numbers", () => {
  const text = '{"id":9007199254740993123,"s":"9007199254740993123 1.0","f":[1.0,-0,1e5,0.1,1e-7,0.0000001],"n":1.50}';
  assert.equal(stringify(parse(text)), text);
  assert.equal(parse(text).n * 2, 3);
  assert.deepEqual(parseAnswer('{"ms":1.0,"items":[{"cost":0.0}]}'), { ms: 1, items: [{ cost: 0 }] });
  assert.equal(stringify(parseAnswer('{"arguments":{"x":1.0},"ms":1.0}')), '{"arguments":{"x":1.0},"ms":1}');
  assert.throws(() => parse('{"a": 1.0,}'), SyntaxError);
});

test("a typed number is refused if a call would change it", () => {
  for (const kept of ["9007199254740993123", "1.50", "1E5", "-0.0", "5e-324", "0.30000000000000004", "1e22"]) {
    assert.ok(isKept(kept), kept);
  }
  for (const lost of ["0.1234567890123456789", "1e400", "9007199254740993.5", "1e-400"]) {
    assert.ok(!isKept(lost), lost);
    assert.throws(() => typed(`{"a": [${lost}]}`), /would become/);
  }
  assert.equal(stringify(typed('["1e400", 1.50]')), '["1e400",1.50]');
});

test("a text folds by the rows that it takes and says what it hides", () => {
  const lines = (count) => Array.from({ length: count }, (_, at) => `line ${at}`).join("\n");
  assert.equal(foldOf(lines(6), 64), null);
  assert.deepEqual(foldOf(lines(20), 64), { head: "line 0\nline 1\nline 2", tail: "line 18\nline 19", hidden: { lines: 15, characters: 114 } });
  assert.equal(foldOf("x".repeat(380), 64), null);
  assert.deepEqual(foldOf("x".repeat(1000), 64)?.hidden, { lines: 1, characters: 680 });
  const blank = foldOf(`a\n${"\n".repeat(99)}b\n${"\n".repeat(99)}c`, 64);
  assert.deepEqual([blank?.head, blank?.tail, blank?.hidden.lines], ["a", "c", 199]);
  assert.ok(foldOf("\u200b".repeat(50), 64)); // each is shown as a mark
  for (const text of [lines(50), "\u{1F600}".repeat(999), `${"x".repeat(500)}\n\n${"y".repeat(500)}`]) {
    const { head, tail, hidden } = /** @type {any} */ (foldOf(text, 64));
    assert.equal(head.length + hidden.characters + tail.length, text.length);
    assert.ok(text.startsWith(head) && text.endsWith(tail) && head.isWellFormed() && tail.isWellFormed());
  }
});

test("each part that is not shown at first is a fold", () => {
  const long = "word ".repeat(200);
  assert.deepEqual(foldsIn({ a: "short", b: long, c: { d: 1 } }), ["/b"]);
  assert.deepEqual(foldsIn({ "x/y": { note: long, ok: true } }), ["/x~1y", "/x~1y/note"]);
  const many = Object.fromEntries(Array.from({ length: 40 }, (_, at) => [`name${at}`, at]));
  assert.deepEqual(foldsIn(many), ["/~"]);
  assert.deepEqual(foldsIn({ [`a${"\n".repeat(300)}b`]: 1 }), [`/a${"\n".repeat(300)}b~name`]);
  assert.deepEqual(foldsIn("not an object ".repeat(50)), [""]);
  assert.deepEqual(foldsIn([long]), ["", "/0"]);
  assert.deepEqual(foldsIn({ list: Array.from({ length: 101 }, () => "item") }), ["/list", "/list/~"]);
});
