// What the first screen does without: the messages with their cards, one call, the panel and the list of tools.

export { Entry, Interrupted } from "./entries.js";
export { OneCall } from "./one_call.js";
export { Panel } from "./panel.js";
export { isPicture, Preview } from "./preview.js";
export { Tools } from "./tools.js";
