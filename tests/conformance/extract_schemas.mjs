// Writes the specification's JSON Schemas, one file a revision, that the conformance suite
// carries inside its one bundled file.
//
//     node extract_schemas.mjs SUITE_INDEX_JS OUTPUT_FOLDER

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInNewContext } from "node:vm";

const [suite, output] = process.argv.slice(2);
const code = readFileSync(suite, "utf8");

// The one table that names a schema for each revision; its last key is a constant.
const table =
  /\{"2025-03-26":(\w+),"2025-06-18":(\w+),"2025-11-25":(\w+),\[\w+\]:(\w+)\}/.exec(code);
if (table === null) throw new Error(`${suite}: no table of schemas; another version of the suite?`);
const revisions = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];

mkdirSync(output, { recursive: true });
revisions.forEach((revision, index) => {
  const start = code.indexOf(`${table[index + 1]}={$schema:`);
  if (start < 0) throw new Error(`${suite}: no schema for ${revision}`);
  const schema = runInNewContext(`(${objectAt(code, code.indexOf("{", start))})`);
  writeFileSync(join(output, `${revision}.json`), JSON.stringify(schema, null, 1));
});

// The text of the object literal that opens at `start`.
function objectAt(text, start) {
  let depth = 0;
  let quote = "";
  for (let at = start; at < text.length; at++) {
    const char = text[at];
    if (quote) {
      if (char === "\\") at++;
      else if (char === quote) quote = "";
    } else if ("\"'`".includes(char)) quote = char;
    else if (char === "{") depth++;
    else if (char === "}" && --depth === 0) return text.slice(start, at + 1);
  }
  throw new Error(`${suite}: an object that never ends`);
}
