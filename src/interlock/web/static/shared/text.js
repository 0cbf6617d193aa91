// The sentences that every part of the pages uses.

import messages from "./messages/en.json" with { type: "json" };
import { wordsOf } from "./words.js";

export const t = wordsOf(messages);
