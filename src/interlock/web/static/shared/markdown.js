// Markdown as it arrives: tokens become nodes, and no string ever becomes markup.
//
// 1. Only what follows the last finished block is lexed again.
// 2. A finished block is never touched again. A block is finished when another one has begun in a
//    complete line after it.
// 3. After the last piece the nodes equal those of the whole text rendered at once.

import { Lexer } from "../vendor/marked.js";

/** @typedef {any} Token A token of the lexer. */
/** @typedef {{token: Token, node: HTMLElement}} Block */

const OPTIONS = { gfm: true, breaks: false, pedantic: false };
const SCHEMES = new Set(["http:", "https:", "mailto:"]);
// Characters that change the direction of text, or hide text from readers.
const HIDDEN = /[\u202A-\u202E\u2066-\u2069]|\uDB40[\uDC00-\uDC7F]/g;
/** @type {Record<string, string>} */
const ENTITIES = {
  amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00A0", copy: "©", reg: "®",
  trade: "™", hellip: "…", mdash: "—", ndash: "–", lsquo: "‘", rsquo: "’", ldquo: "“",
  rdquo: "”", bull: "•", middot: "·", deg: "°", times: "×", plusmn: "±", euro: "€", larr: "←",
  rarr: "→", harr: "↔", le: "≤", ge: "≥", ne: "≠", frac12: "½", para: "¶", sect: "§",
};

/** @typedef {{copy?: string, copied?: string, image?: (host: string) => string}} Labels */

/** A message whose text grows. */
export class MarkdownStream {
  /**
   * @param {HTMLElement} container
   * @param {Labels} [labels] Words for the buttons.
   */
  constructor(container, labels = {}) {
    this.container = container;
    this.labels = labels;
    /** What is not finished yet. */
    this.pending = "";
    /** All of the text. */
    this.text = "";
    /** @type {Block[]} */
    this.open = [];
    /** How often the whole text was rendered again at the end. */
    this.rebuilt = 0;
    this.hasDefinitions = false;
    this.held = "";
    /** @type {import("./code.js").Painter | null} Made for the first code. */
    this.painter = null;
    this.isCleared = false;
  }

  /** Forget the container, which leaves the page. */
  clear() {
    this.isCleared = true;
    this.painter?.clear();
    this.container.replaceChildren();
  }

  /** Colour the code of a finished block. @param {HTMLElement} node */
  #paint(node) {
    if (!node.querySelector("pre")) return;
    import("./code.js").then(
      ({ Painter }) => {
        if (this.isCleared) return;
        this.painter ??= new Painter();
        this.painter.paint(node);
      },
      () => {}, // code without colours is code
    );
  }

  /**
   * Add text; nothing is drawn before `draw`.
   * @param {string} text
   */
  append(text) {
    let more = this.held + text;
    this.held = more.endsWith("\r") ? "\r" : "";
    if (this.held) more = more.slice(0, -1);
    more = more.replace(/\r\n?/g, "\n");
    this.text += more;
    this.pending += more;
  }

  /** Draw what has arrived. */
  draw() {
    const tokens = lexed(this.pending);
    this.#show(tokens);
    this.#finish(tokens);
  }

  /** Draw the last of it. */
  end() {
    if (this.held) {
      this.held = "";
      this.text += "\n";
      this.pending += "\n";
    }
    this.draw();
    for (const { node } of this.open) this.#paint(node);
    // The definition of a reference counts for the text before it, too.
    if (!this.hasDefinitions) return;
    this.rebuilt += 1;
    this.painter?.clear();
    this.container.replaceChildren(...blocks(lexed(this.text), this.labels));
    this.#paint(this.container);
    this.open = [];
    this.pending = "";
  }

  /** @param {Token[]} tokens */
  #show(tokens) {
    const shown = tokens.filter(isShown);
    for (const [at, token] of shown.entries()) {
      const before = this.open[at];
      if (before && before.token.type === token.type) {
        if (before.token.raw !== token.raw) patch(before, token, this.labels);
        before.token = token;
      } else {
        const node = block(token, this.labels);
        if (before) before.node.replaceWith(node);
        else this.container.append(node);
        this.open[at] = { token, node };
      }
    }
    for (const rest of this.open.splice(shown.length)) rest.node.remove();
  }

  /** @param {Token[]} tokens */
  #finish(tokens) {
    const complete = this.pending.lastIndexOf("\n") + 1;
    let last = -1;
    let at = 0;
    for (const [index, token] of tokens.entries()) {
      if (token.type === "def") this.hasDefinitions = true;
      if (token.type !== "space" && at < complete) last = index;
      at += token.raw.length;
    }
    const done = tokens.slice(0, Math.max(0, last));
    if (done.length === 0) return;
    this.pending = this.pending.slice(done.reduce((sum, token) => sum + token.raw.length, 0));
    for (const { node } of this.open.splice(0, done.filter(isShown).length)) this.#paint(node);
  }
}

/**
 * Return the nodes of a whole text.
 * @param {string} text
 * @param {Labels} [labels]
 * @returns {HTMLElement[]}
 */
export function rendered(text, labels = {}) {
  return blocks(lexed(text.replace(/\r\n?/g, "\n")), labels);
}

/** @param {string} text @returns {Token[]} */
function lexed(text) {
  return /** @type {any} */ (new Lexer(/** @type {any} */ (OPTIONS)).lex(text));
}

/** @param {Token} token */
function isShown(token) {
  return token.type !== "space" && token.type !== "def";
}

/** @param {Token[]} tokens @param {Labels} labels */
function blocks(tokens, labels) {
  return tokens.filter(isShown).map((token) => block(token, labels));
}

/**
 * Change the nodes of an open block as little as its new token asks for.
 * @param {Block} open
 * @param {Token} token
 * @param {Labels} labels
 */
function patch(open, token, labels) {
  const { token: before, node } = open;
  if (token.type === "code" && before.lang === token.lang) {
    const data = /** @type {Text} */ (node.querySelector("code")?.firstChild);
    if (data && token.text.startsWith(before.text)) {
      data.appendData(token.text.slice(before.text.length));
      return;
    }
  }
  if (token.type === "list" && sameList(before, token)) {
    keepAlike(node, before.items, token.items, (each) => item(each, token, labels));
    return;
  }
  if (token.type === "table" && sameHead(before, token)) {
    const body = node.querySelector("tbody");
    if (body) {
      keepAlike(body, before.rows, token.rows, (each) => row(each, "td"), sameRow);
      return;
    }
  }
  if (token.type === "paragraph" || token.type === "heading") {
    if (token.depth === before.depth) {
      node.replaceChildren(...inline(token.tokens));
      return;
    }
  }
  const made = block(token, labels);
  node.replaceWith(made);
  open.node = made;
}

/** @param {Token} before @param {Token} now */
function sameList(before, now) {
  return (
    before.ordered === now.ordered && before.start === now.start && before.loose === now.loose
  );
}

/** @param {Token} before @param {Token} now */
function sameHead(before, now) {
  return sameRow(before.header, now.header) && before.rows.length > 0;
}

/** @param {Token[]} before @param {Token[]} now */
function sameRow(before, now) {
  return (
    before.length === now.length &&
    before.every((cell, at) => cell.text === now[at].text && cell.align === now[at].align)
  );
}

/**
 * Keep the children whose tokens are the same, and make the others.
 * @param {Element} parent
 * @param {Token[]} before
 * @param {Token[]} now
 * @param {(token: Token) => Node} make
 * @param {(before: Token, now: Token) => boolean} [same]
 */
function keepAlike(parent, before, now, make, same = (one, other) => one.raw === other.raw) {
  let kept = 0;
  while (kept < before.length && kept < now.length && same(before[kept], now[kept])) kept += 1;
  while (parent.children.length > kept) parent.lastElementChild?.remove();
  for (const token of now.slice(kept)) parent.append(make(token));
}

// Blocks

/** @param {string} name @param {string} [kind] @param {(Node | string)[]} [children] */
function element(name, kind = "", children = []) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  made.append(...children);
  return made;
}

/** @param {Token} token @param {Labels} labels @returns {HTMLElement} */
function block(token, labels) {
  switch (token.type) {
    case "heading": {
      const made = element(`h${Math.min(6, token.depth + 1)}`, "", inline(token.tokens));
      made.dir = "auto";
      return made;
    }
    case "code":
      return code(token, labels);
    case "blockquote":
      return element("blockquote", "", blocks(token.tokens, labels));
    case "list": {
      const made = element(token.ordered ? "ol" : "ul");
      if (token.ordered && token.start !== 1) made.setAttribute("start", String(token.start));
      made.append(...token.items.map((/** @type {Token} */ each) => item(each, token, labels)));
      return made;
    }
    case "table":
      return table(token);
    case "hr":
      return element("hr");
    case "html":
      return element("p", "", texts(token.raw.trimEnd()));
    default: {
      const made = element("p", "", token.tokens ? inline(token.tokens) : texts(token.text ?? token.raw));
      made.dir = "auto";
      return made;
    }
  }
}

/** @param {Token} token @param {Token} list @param {Labels} labels */
function item(token, list, labels) {
  const made = element("li");
  const parts = token.tokens.filter((/** @type {Token} */ each) => isShown(each) && each.type !== "checkbox");
  for (const each of parts) {
    if (each.type === "text" || (each.type === "paragraph" && !list.loose)) {
      made.append(...(each.tokens ? inline(each.tokens) : texts(each.text)));
    } else {
      made.append(block(each, labels));
    }
  }
  if (token.task) {
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = Boolean(token.checked);
    box.disabled = true;
    const own = element("span", "", inline(parts[0]?.tokens)).textContent?.trim();
    box.setAttribute("aria-label", own || made.textContent?.trim() || "");
    made.prepend(box, " ");
  }
  return made;
}

/** @param {Token} token */
function table(token) {
  const head = element("thead", "", [row(token.header, "th")]);
  const body = element("tbody", "", token.rows.map((/** @type {Token[]} */ each) => row(each, "td")));
  const made = element("div", "scroll-x", [element("table", "", [head, body])]);
  made.tabIndex = 0;
  made.setAttribute("role", "region");
  made.setAttribute("aria-label", token.header.map((/** @type {Token} */ cell) => cell.text).join(", "));
  return made;
}

/** @param {Token[]} cells @param {"th" | "td"} name */
function row(cells, name) {
  return element(
    "tr",
    "",
    cells.map((cell) => {
      const made = element(name, cell.align ? `align-${cell.align}` : "", inline(cell.tokens));
      if (name === "th") made.setAttribute("scope", "col");
      return made;
    }),
  );
}

/** @param {Token} token @param {Labels} labels */
function code(token, labels) {
  const text = document.createTextNode(token.text);
  const pre = element("pre", "", [element("code", "", [text])]);
  pre.tabIndex = 0;
  pre.dir = "ltr";
  const language = (token.lang ?? "").split(/\s/)[0].slice(0, 30);
  pre.dataset.language = language;
  const head = element("div", "code-head", [element("span", "", [language])]);
  if (labels.copy) {
    const button = /** @type {HTMLButtonElement} */ (element("button", "link", [labels.copy]));
    button.type = "button";
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(text.data);
      button.textContent = labels.copied ?? "";
      setTimeout(() => (button.textContent = labels.copy ?? ""), 2000);
    });
    head.append(button);
  }
  return element("div", "code", [head, pre]);
}

// Text within blocks

/** @param {Token[] | undefined} tokens @returns {(Node | string)[]} */
function inline(tokens = []) {
  return tokens.flatMap((token) => {
    switch (token.type) {
      case "strong":
      case "em":
      case "del":
        return [element(token.type, "", inline(token.tokens))];
      case "codespan":
        return [element("code", "", texts(token.text))];
      case "br":
        return [element("br")];
      case "link":
        return link(token);
      case "image":
        return [image(token)];
      case "escape":
        return texts(token.text);
      case "html":
        return texts(token.raw);
      case "checkbox":
        return [];
      default:
        return token.tokens ? inline(token.tokens) : texts(decoded(token.text ?? token.raw));
    }
  });
}

/** @param {Token} token */
function link(token) {
  const target = address(decoded(token.href));
  const shown = inline(token.tokens);
  if (target === null) return [...shown, ` (${token.href})`];
  const made = /** @type {HTMLAnchorElement} */ (element("a", "", shown));
  made.href = target.href;
  made.target = "_blank";
  made.rel = "noopener noreferrer";
  const host = target.host || target.pathname;
  made.dataset.host = host;
  if ((made.textContent ?? "").includes(host)) return [made];
  return [made, element("span", "host", [` (${host})`])];
}

/** @param {Token} token */
function image(token) {
  const target = address(decoded(token.href));
  const host = target === null ? "?" : target.host;
  return element("span", "no-image", [`[${decoded(token.text)} – ${host}]`]);
}

/** @param {string} href */
function address(href) {
  let found;
  try {
    found = new URL(href);
  } catch {
    return null;
  }
  return SCHEMES.has(found.protocol) ? found : null;
}

/**
 * Return a text as nodes, with marks for characters that hide what it says.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function texts(text) {
  const parts = [];
  let last = 0;
  for (const match of text.matchAll(HIDDEN)) {
    if (match.index > last) parts.push(text.slice(last, match.index));
    const point = match[0].codePointAt(0) ?? 0;
    const name = `U+${point.toString(16).toUpperCase().padStart(4, "0")}`;
    parts.push(element("span", "mark-char", [name]));
    last = match.index + match[0].length;
  }
  if (last < text.length) parts.push(text.slice(last));
  return parts;
}

/** @param {string} text */
function decoded(text) {
  if (!text.includes("&")) return text;
  return text.replace(/&(#x[\da-f]{1,6}|#\d{1,7}|[a-z]\w{1,30});/gi, (whole, name) => {
    if (name[0] !== "#") return ENTITIES[name] ?? whole;
    const point = /^#x/i.test(name) ? parseInt(name.slice(2), 16) : Number(name.slice(1));
    return point > 0 && point <= 0x10ffff ? String.fromCodePoint(point) : "\uFFFD";
  });
}
