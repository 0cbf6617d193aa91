// The differences of two texts, by words or by lines (Myers' algorithm).

const MOST = 1_000; // changes that are looked for: a text of a server must not freeze the page
const WORDS = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const LINES = /[^\n]*\n|[^\n]+/g;

/** @typedef {"same" | "added" | "removed"} Kind */
/** @typedef {{kind: Kind, value: string}} Part */

/**
 * Return the parts of two texts in order, as few of them changed as possible. Where more than
 * `MOST` words or lines differ, everything between the first and the last of them is a change.
 * @param {string} before
 * @param {string} after
 * @param {boolean} byWord
 * @returns {Part[]}
 */
export function changes(before, after, byWord) {
  const one = before.match(byWord ? WORDS : LINES) ?? [];
  const other = after.match(byWord ? WORDS : LINES) ?? [];
  const least = Math.min(one.length, other.length);
  let head = 0;
  while (head < least && one[head] === other[head]) head += 1;
  let tail = 0;
  while (tail < least - head && one.at(-1 - tail) === other.at(-1 - tail)) tail += 1;
  const [a, b] = [one.slice(head, one.length - tail), other.slice(head, other.length - tail)];
  return joined([
    ...one.slice(0, head).map(part("same")),
    ...(shortest(a, b) ?? [...a.map(part("removed")), ...b.map(part("added"))]),
    ...one.slice(one.length - tail).map(part("same")),
  ]);
}

/** @param {Kind} kind @returns {(value: string) => Part} */
const part = (kind) => (value) => ({ kind, value });

/**
 * Return the shortest way from one list to another, or null if it has too many changes.
 * @param {string[]} a
 * @param {string[]} b
 * @returns {Part[] | null}
 */
function shortest(a, b) {
  // How far each diagonal (the place in `a` less the place in `b`) is reached by so many changes.
  const reached = new Int32Array(2 * MOST + 3);
  const rounds = [];
  for (let count = 0; count <= MOST; count += 1) {
    rounds.push(reached.slice());
    for (let diagonal = -count; diagonal <= count; diagonal += 2) {
      let x = start(reached, diagonal, count);
      while (x < a.length && x - diagonal < b.length && a[x] === b[x - diagonal]) x += 1;
      reached[diagonal + MOST + 1] = x;
      if (x >= a.length && x - diagonal >= b.length) return way(a, b, rounds);
    }
  }
  return null;
}

/** @param {Int32Array} reached @param {number} diagonal @param {number} count */
function start(reached, diagonal, count) {
  const at = diagonal + MOST + 1;
  const isAdded = added(reached, diagonal, count);
  return count === 0 ? 0 : isAdded ? Number(reached[at + 1]) : Number(reached[at - 1]) + 1;
}

/** Whether a diagonal is reached by an addition. @param {Int32Array} reached @param {number} diagonal @param {number} count */
function added(reached, diagonal, count) {
  const at = diagonal + MOST + 1;
  return diagonal === -count || (diagonal !== count && Number(reached[at - 1]) < Number(reached[at + 1]));
}

/**
 * Return the way that the rounds have found, from its end to its beginning and turned around.
 * @param {string[]} a
 * @param {string[]} b
 * @param {Int32Array[]} rounds
 */
function way(a, b, rounds) {
  /** @type {Part[]} */
  const found = [];
  let [x, y] = [a.length, b.length];
  for (let count = rounds.length - 1; count >= 0; count -= 1) {
    const reached = /** @type {Int32Array} */ (rounds[count]);
    const isAdded = added(reached, x - y, count);
    const from = start(reached, x - y, count);
    for (; x > from; x -= 1, y -= 1) found.push(part("same")(String(a[x - 1])));
    if (count === 0) break;
    if (isAdded) found.push(part("added")(String(b[(y -= 1)])));
    else found.push(part("removed")(String(a[(x -= 1)])));
  }
  return found.reverse();
}

/** @param {Part[]} parts */
function joined(parts) {
  /** @type {Part[]} */
  const found = [];
  for (const { kind, value } of parts) {
    const last = found.at(-1);
    if (last?.kind === kind) last.value += value;
    else found.push({ kind, value });
  }
  return found;
}
