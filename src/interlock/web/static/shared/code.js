// Colours of code. The browser paints ranges of the text, so that no node is added for them.

const LONGEST = 50_000; // characters; longer code stays without colours

/** @typedef {"comment" | "string" | "number" | "keyword" | "name" | "added" | "removed"} Kind */
/** @typedef {[kind: Kind, from: number, to: number]} Token */

const TEXTS = String.raw`"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?`;
const NUMBER = String.raw`\b(?:0[xob][\da-f_]+|\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)\w*`;
const WORD = String.raw`[a-z_$][\w$]*`;
const C_COMMENT = String.raw`//[^\n]*|/\*[^]*?(?:\*/|(?![^]))`;
const HASH_COMMENT = String.raw`#[^\n]*`;

const C_WORDS =
  "abstract as async await auto bool boolean break byte case catch chan char class const continue " +
  "crate default defer delete do double else enum export extends extern false final finally float " +
  "fn for foreach from func function go goto if impl implements import in include instanceof int " +
  "interface internal is let long loop map match mod module mut namespace new nil null of override " +
  "package private protected pub public range readonly ref return select self short signed sizeof " +
  "static string struct super switch template this throw throws trait true try type typeof " +
  "undefined union unsafe unsigned use using val var virtual void volatile when where while yield";
const PYTHON_WORDS =
  "False None True and as assert async await begin break case class continue def del do elif else " +
  "end ensure except finally for from global if import in is lambda match module nil nonlocal not " +
  "or pass raise require rescue return self then try unless until while with yield";
const SHELL_WORDS =
  "case do done elif else esac exit export fi for function if in local readonly return set shift " +
  "source then trap unset until while";
const SQL_WORDS =
  "all alter and as asc begin between by case commit create cross default delete desc distinct drop " +
  "else end exists foreign from full group having if in index inner insert into is join key left " +
  "like limit not null offset on or order outer primary references returning right rollback select " +
  "set table then union unique update using values view when where with";

/**
 * @typedef {object} Family Languages that are written alike.
 * @property {string} names
 * @property {string} comment
 * @property {string} [texts]
 * @property {string} [key] What names a value.
 * @property {string} [words]
 */

/** @type {Family[]} */
const FAMILIES = [
  {
    names: "js javascript mjs cjs jsx ts typescript tsx java c h cpp c++ cc cs csharp go rust rs kotlin kt swift scala php dart proto",
    comment: C_COMMENT,
    texts: `${TEXTS}|${String.raw`${"`"}(?:\\.|[^${"`"}\\])*${"`"}?`}`,
    words: C_WORDS,
  },
  {
    names: "py python py3 pyi rb ruby",
    comment: HASH_COMMENT,
    texts: String.raw`"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))|${TEXTS}`,
    words: PYTHON_WORDS,
  },
  { names: "sh bash zsh shell console make makefile dockerfile", comment: HASH_COMMENT, words: SHELL_WORDS },
  { names: "sql sqlite postgresql mysql lua", comment: String.raw`--[^\n]*|/\*[^]*?(?:\*/|(?![^]))`, words: SQL_WORDS },
  { names: "json json5 jsonc jsonl", comment: C_COMMENT, key: String.raw`"(?:\\.|[^"\\\n])*"(?=\s{0,9}:)`, words: "true false null" },
  {
    names: "yaml yml toml ini conf properties",
    comment: HASH_COMMENT,
    key: String.raw`^[ \t-]{0,99}[\w.$-]{1,99}(?=[ \t]{0,9}[:=])|^\[[^\]\n]*\]`,
    words: "true false null yes no on off",
  },
  { names: "css scss less", comment: C_COMMENT, key: String.raw`(?<![\w-])[\w-]{1,60}(?=[ \t]{0,9}:)|@[\w-]{1,60}` },
  { names: "html xml svg xhtml vue", comment: String.raw`<!--[^]*?(?:-->|(?![^]))`, key: String.raw`</?[\w:-]+|/?>` },
];

/** @type {Map<string, {pattern: RegExp, words: Set<string>, ignoresCase: boolean}>} */
const LANGUAGES = new Map(
  FAMILIES.flatMap(({ names, comment, texts = TEXTS, key = "(?!)", words = "" }) => {
    const source = `(?<comment>${comment})|(?<key>${key})|(?<string>${texts})|(?<number>${NUMBER})|(?<word>${WORD})`;
    const ignoresCase = words === SQL_WORDS;
    const language = { pattern: new RegExp(source, "gim"), words: new Set(words.split(" ")), ignoresCase };
    return names.split(" ").map((name) => /** @type {const} */ ([name, language]));
  }),
);

/**
 * Return the parts of code that have a colour, in their order.
 * @param {string} text
 * @param {string} name Of the language, as after the fence; an unknown one has no parts.
 * @returns {Token[]}
 */
export function tokensOf(text, name) {
  if (text.length > LONGEST) return [];
  if (name.toLowerCase() === "diff" || name.toLowerCase() === "patch") return linesOfDiff(text);
  const language = LANGUAGES.get(name.toLowerCase());
  if (!language) return [];
  /** @type {Token[]} */
  const tokens = [];
  for (const { 0: whole, index, groups = {} } of text.matchAll(language.pattern)) {
    const kind = kindOf(groups, language, text[index + whole.length]);
    if (kind) tokens.push([kind, index, index + whole.length]);
  }
  return tokens;
}

/**
 * @param {Record<string, string | undefined>} groups
 * @param {{words: Set<string>, ignoresCase: boolean}} language
 * @param {string | undefined} next The character after it.
 * @returns {Kind | null}
 */
function kindOf(groups, { words, ignoresCase }, next) {
  if (groups.comment) return "comment";
  if (groups.key) return "name";
  if (groups.string) return "string";
  if (groups.number) return "number";
  const word = groups.word ?? "";
  if (words.has(ignoresCase ? word.toLowerCase() : word)) return "keyword";
  return next === "(" ? "name" : null;
}

/** @param {string} text @returns {Token[]} */
function linesOfDiff(text) {
  /** @type {Record<string, Kind>} */
  const kinds = { "+": "added", "-": "removed", "@": "keyword" };
  return [...text.matchAll(/^[+\-@].*/gm)].map(({ 0: line, index }) => [
    kinds[line[0] ?? ""] ?? "keyword",
    index,
    index + line.length,
  ]);
}

/** Paints code, and takes the colours away when the code leaves the page. */
export class Painter {
  /** @type {[Highlight, StaticRange][]} */
  #painted = [];

  /** @param {Element} parent Each block of code in it is painted. */
  paint(parent) {
    if (!("highlights" in CSS)) return; // an older browser shows code without colours
    for (const code of parent.querySelectorAll("pre > code")) {
      const node = code.firstChild;
      if (!(node instanceof Text)) continue;
      for (const [kind, from, to] of tokensOf(node.data, code.parentElement?.dataset.language ?? "")) {
        const range = new StaticRange({ startContainer: node, startOffset: from, endContainer: node, endOffset: to });
        const highlight = highlightOf(kind);
        highlight.add(range);
        this.#painted.push([highlight, range]);
      }
    }
  }

  clear() {
    for (const [highlight, range] of this.#painted) highlight.delete(range);
    this.#painted = [];
  }
}

/** @param {Kind} kind */
function highlightOf(kind) {
  const name = `code-${kind}`;
  const found = CSS.highlights.get(name) ?? new Highlight();
  CSS.highlights.set(name, found);
  return found;
}
