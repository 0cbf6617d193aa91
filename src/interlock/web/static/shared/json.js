// JSON as a tree that is drawn when it is opened. What is folded says how much it hides.

import { isBranch, stringify } from "./exact.js";
import { below, columns, foldOf, foldsIn, hiddenIn, MANY, membersOf, NAME, nameOf, restOf, shownOf, sizeOf } from "./fold.js";
import { marked } from "./marks.js";
import { Pieces } from "./pieces.js";
import { t } from "./text.js";
import { createContext, html, useCallback, useContext, useMemo, useState } from "./view.js";

/** @typedef {import("./fold.js").Hidden} Hidden */

/**
 * @typedef {object} Seen Which folds a person has opened.
 * @property {ReadonlySet<string>} paths
 * @property {(path: string) => void} open
 *
 * @typedef {object} Cut What the server has kept back of a value.
 * @property {Record<string, [number, number]>} cuts By JSON pointer: the offset of the next part, and the whole size.
 * @property {(pointer: string) => void} more Loads the next part.
 */

/** @type {import("../vendor/preact.js").Context<Seen | null>} */
export const SeenFolds = createContext(/** @type {any} */ (null));
/** @type {import("../vendor/preact.js").Context<Cut | null>} */
export const CutParts = createContext(/** @type {any} */ (null));

/**
 * A value as a tree. The first levels are open.
 * @param {{value: unknown, open?: number, path?: string}} props
 */
export function JsonView({ value, open = 2, path = "" }) {
  return html`<div class="json" dir="ltr"><${Value} value=${value} open=${open} path=${path} /></div>`;
}

/**
 * Follow which folds of some arguments a person opens: none may be approved before.
 * @param {Record<string, unknown>} values By a name for each call.
 */
export function useReview(values) {
  const [opened, setOpened] = useState(/** @type {ReadonlySet<string>} */ (new Set()));
  const width = columns();
  const folds = useMemo(
    () => Object.entries(values).flatMap(([name, value]) => foldsIn(value).map((path) => name + path)),
    [width, ...Object.values(values)],
  );
  const open = useCallback((/** @type {string} */ path) => setOpened((before) => new Set(before).add(path)), []);
  return { seen: { paths: opened, open }, unread: folds.filter((each) => !opened.has(each)).length, openAll: () => setOpened(new Set(folds)) };
}

/** What must be opened before an approval, and a button for it. @param {{review: ReturnType<typeof useReview>, id?: string}} props */
export function Unread({ review: { unread, openAll }, id }) {
  return (
    unread > 0 &&
    html`<p class="small unread" id=${id}>${t("fold.unread", { n: unread })} <button type="button" class="link" onClick=${openAll}>${t("fold.all")}</button></p>`
  );
}

/** Whether a fold is open, and what changes it. @param {string} path @param {boolean} [isOpen] At first. */
function useFold(path, isOpen = false) {
  const seen = useContext(SeenFolds);
  const [chosen, choose] = useState(/** @type {boolean | null} */ (null));
  const now = chosen ?? (isOpen || (seen?.paths.has(path) ?? false));
  const set = (/** @type {boolean} */ open) => {
    if (open) seen?.open(path);
    choose(open);
  };
  return /** @type {const} */ ([now, set]);
}

/** What a fold hides, in words. @param {Hidden} hidden */
function words({ lines, characters }) {
  return `${t("fold.lines", { n: lines })}, ${t("fold.characters", { n: characters })}`;
}

/**
 * The button of a fold.
 * @param {{hidden: Hidden, isOpen: boolean, set: (open: boolean) => void, what?: string}} props
 */
function Turn({ hidden, isOpen, set, what = "" }) {
  return html`<button type="button" class="link fold" aria-expanded=${String(isOpen)} onClick=${() => set(!isOpen)}>
    ${isOpen ? t("show.less") : t("fold.show", { what: what + words(hidden) })}
  </button>`;
}

/** A button that loads the next part of a value that the server has cut. @param {{path: string}} props */
export function More({ path }) {
  const cut = useContext(CutParts);
  const [offset, size] = cut?.cuts[path] ?? [0, 0];
  return size > offset && html` <button type="button" class="link fold" onClick=${() => cut?.more(path)}>${t("cut.more", { n: size - offset })}</button>`;
}

/** @param {{value: any, open: number, path: string}} props */
function Value({ value, open, path }) {
  const more = html`<${More} path=${path} />`;
  if (typeof value === "string") return html`<span class="string">"<${Folded} text=${value} path=${path} />"</span>${more}`;
  if (!isBranch(value)) return html`<span class="value">${String(value)}</span>`;
  return html`<${Branch} value=${value} open=${open} path=${path} />${more}`;
}

/** @param {{value: object, open: number, path: string}} props */
function Branch({ value, open, path }) {
  const seen = useContext(SeenFolds);
  const isList = Array.isArray(value);
  const entries = membersOf(value);
  const hidden = seen ? hiddenIn(value) : null; // only arguments say how long they are
  const [isOpen, setOpen] = useFold(path, open > 0);
  if (entries.length === 0 || (seen && !hidden)) return html`<span class="value">${marked(stringify(value))}</span>`;
  const [first, last] = isList ? ["[", "]"] : ["{", "}"];
  const size = t(isList ? "json.items" : "json.members", { n: entries.length });
  return html`<details open=${isOpen} onToggle=${(/** @type {any} */ event) => setOpen(event.currentTarget.open)}>
    <summary class=${hidden && !isOpen ? "fold" : ""}>${first}${!isOpen && ` ${hidden ? t("fold.show", { what: `${size}, ${words(hidden)}` }) : size} ${last}`}</summary>
    ${isOpen && html`<${Members} entries=${entries} isList=${isList} open=${open - 1} path=${path} />${last}`}
  </details>`;
}

/** @param {{entries: [string, unknown][], isList: boolean, open: number, path: string}} props */
function Members({ entries, isList, open, path }) {
  const seen = useContext(SeenFolds);
  const [wanted, setWanted] = useState(MANY);
  const shown = seen?.paths.has(restOf(path)) ? Infinity : wanted;
  const more = () => {
    setWanted(shown + MANY * 10);
    if (shown + MANY * 10 >= entries.length) seen?.open(restOf(path));
  };
  return html`<div class="members">
    ${entries.slice(0, shown).map(
      ([name, each]) => html`<div>
        ${!isList && html`<span class="key"><${Folded} text=${name} path=${nameOf(below(path, name))} width=${NAME} /></span>${": "}`}<${Value} value=${each} open=${open} path=${below(path, name)} />
      </div>`,
    )}
    ${entries.length > shown && html`<button type="button" class="link" onClick=${more}>${t("show.more.of", { n: entries.length - shown })}</button>`}
  </div>`;
}

/**
 * A text of which the first and the last rows are shown until it is opened.
 * @param {{text: string, path?: string, width?: number}} props
 */
export function Folded({ text, path = "", width = columns() }) {
  const [isOpen, set] = useFold(path);
  const fold = useMemo(() => foldOf(text, width), [text, width]);
  if (!fold) return html`<bdi dir="auto">${marked(text)}</bdi>`;
  if (isOpen) return html`<${Pieces} text=${text} /><${Turn} hidden=${fold.hidden} isOpen=${true} set=${set} />`;
  return html`<bdi dir="auto">${marked(fold.head)}</bdi
    ><span class="fold-line"><${Turn} hidden=${fold.hidden} isOpen=${false} set=${set} /></span
    ><bdi dir="auto">${marked(fold.tail)}</bdi>`;
}

/**
 * All arguments of a call, a name a line. The last of very many are folded.
 * @param {{value: unknown, of?: string}} props `of`: the name of the call where there are several.
 */
export function Arguments({ value, of = "" }) {
  const [isOpen, set] = useFold(restOf(of));
  if (!isBranch(value) || Array.isArray(value)) return html`<${JsonView} value=${value} />`;
  const members = membersOf(value);
  if (members.length === 0) return html`<p class="muted">${t("no.arguments")}</p>`;
  const count = shownOf(members);
  const rest = members.slice(count);
  const hidden = sizeOf(Object.fromEntries(rest));
  return html`<dl class="arguments json">
      ${(isOpen ? members : members.slice(0, count)).map(
        ([name, each]) => html`<dt><${Folded} text=${name} path=${nameOf(below(of, name))} width=${NAME} /></dt>
          <dd><${Value} value=${each} open=${0} path=${below(of, name)} /></dd>`,
      )}
    </dl>
    ${rest.length > 0 && html`<div class="json fold-line"><${Turn} hidden=${hidden} isOpen=${isOpen} set=${set} what=${`${t("fold.arguments", { n: rest.length })}, `} /></div>`}`;
}
