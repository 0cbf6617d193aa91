// The sentences of the chat.

import messages from "./messages/en.json" with { type: "json" };
import { wordsOf } from "../shared/text.js";

export const t = wordsOf(messages);
