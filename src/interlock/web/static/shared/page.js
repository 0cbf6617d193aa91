// The data of the page, as the server put them into the document.

/**
 * @typedef {object} PageData
 * @property {string} version The version of interlock.
 * @property {boolean} [chat] Whether there is a chat.
 * @property {boolean} [local] Whether the pages are for the person at this machine only.
 * @property {boolean} [builtIn] Whether the built-in rules of that person's machine hold.
 * @property {boolean} [board] Whether there is a board.
 * @property {boolean} [inspect] Whether there is an inspector.
 * @property {string[]} [later] Addresses of the modules that are loaded after the first screen.
 */

/** @type {PageData} */
export const page = JSON.parse(document.getElementById("data")?.textContent ?? "{}");
