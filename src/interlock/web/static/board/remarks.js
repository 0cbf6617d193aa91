// Remarks on the text of a definition: what poisoned definitions have in common.

/** @typedef {"remark.orders" | "remark.secret" | "remark.invisible" | "remark.address" | "remark.tool"} Kind */

const ORDERS = /\b(before|after|always|never|must|first)\b[^.\n]{0,60}\b(call|calling|use|using|read|send|pass|include|run)\b|ignore (all|any|previous)|do not (tell|mention|show)/i;
const SECRETS = /\.ssh|id_rsa|\.env\b|\bpasswords?\b|\bcredentials?\b|\bapi[ _-]?keys?\b|\btokens?\b|\/etc\/|~\//i;
const INVISIBLE = /[\u0000-\u0008\u000B-\u001F\u007F-\u009F\u00AD\u200B-\u200F\u202A-\u202E\u2060-\u206F\uFEFF]|\uDB40[\uDC00-\uDFFF]/;
const ADDRESS = /\b[a-z][a-z+.-]*:\/\/[^\s"']+/i;
const TOOL = /\b([a-z][\w-]*):([a-z][\w-]*)\b(?!\/)/;

/**
 * Return remarks on what a definition has and its predecessor had not.
 * @param {any} before
 * @param {any} after
 * @returns {{kind: Kind, values: Record<string, string>}[]}
 */
export function remarksOn(before, after) {
  const old = textOf(before);
  const text = textOf(after);
  /** @type {{kind: Kind, values: Record<string, string>}[]} */
  const found = [];
  const rules = /** @type {[Kind, RegExp][]} */ ([
    ["remark.orders", ORDERS],
    ["remark.secret", SECRETS],
    ["remark.invisible", INVISIBLE],
    ["remark.address", ADDRESS],
    ["remark.tool", TOOL],
  ]);
  for (const [kind, pattern] of rules) {
    const match = pattern.exec(text);
    if (match && !old.includes(match[0])) found.push({ kind, values: { text: match[0].slice(0, 80) } });
  }
  return found;
}

/** @param {any} value @returns {string} */
function textOf(value) {
  if (typeof value === "string") return value;
  if (value === null || typeof value !== "object") return "";
  return Object.values(value).map(textOf).filter(Boolean).join("\n");
}
