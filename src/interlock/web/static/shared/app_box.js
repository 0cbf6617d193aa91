// An app of a server, in its box: a frame of an opaque origin that speaks JSON-RPC with this page.

import { ApiError } from "./api.js";
import { Confirm } from "./dialog.js";
import { stringify } from "./exact.js";
import { size } from "./format.js";
import { Foreign, marked } from "./marks.js";
import { page } from "./page.js";
import { save } from "./save.js";
import { t } from "./text.js";
import { html, useEffect, useRef, useState } from "./view.js";

const REVISION = "2026-01-26";
const MAX_HEIGHT = 800; // pixels; a higher app scrolls in its box
const MIN_HEIGHT = 80;
const MAX_RATE = 100; // messages a second; more close the app
const MAX_TEXT = 20_000; // characters that an app may put into the composer
/** Our colours and fonts by the names of the extension. */
const STYLES = {
  "--color-background-primary": "--surface",
  "--color-background-secondary": "--sunken",
  "--color-text-primary": "--text",
  "--color-text-secondary": "--muted",
  "--color-border-primary": "--line",
  "--color-ring-primary": "--accent",
  "--font-sans": "--sans",
  "--font-mono": "--mono",
};

/**
 * @typedef {object} AppOf An app, and what it may ask its page for.
 * @property {string} path Of its document, which is served once.
 * @property {string} [origin] Its own; "" for an opaque one.
 * @property {string} server
 * @property {boolean} hasBorder
 * @property {any} tool Its definition.
 * @property {string} key Of the call.
 * @property {string} address Of the tool.
 * @property {() => Promise<{arguments?: any, result?: any}>} handed What was called, and the result.
 * @property {(name: string, given: object | undefined) => Promise<any>} call Calls a tool of its server.
 * @property {((text: string) => void) | null} fill Puts a text into the composer; null where there is none.
 *
 * @typedef {{kind: "link", url: string} | {kind: "file", files: {name: string, blob: Blob}[]}} Wish
 * @typedef {Wish & {done: (isDone: boolean) => void}} Asked
 * @typedef {{kind: "context" | "message", text: string}} Told
 */

/** @param {{app: AppOf, close: () => void, children?: any}} props */
export function Box({ app, close, children }) {
  const frame = useRef(/** @type {HTMLIFrameElement | null} */ (null));
  const [wish, setWish] = useState(/** @type {Asked | null} */ (null));
  const [told, setTold] = useState(/** @type {Told | null} */ (null));
  const [isTooFast, setTooFast] = useState(false);

  useEffect(() => new Host(frame, app, { setWish, setTold, stop: () => setTooFast(true) }).begin(), []);
  if (isTooFast) {
    return html`<div class="note tone-failed" role="status">
      <div class="grow">${t("app.fast")}</div>
      <button type="button" class="button" onClick=${close}>${t("app.close")}</button>
    </div>`;
  }
  return html`<div class=${`app ${app.hasBorder ? "bordered" : ""}`} data-app=${app.server}>
    <iframe
      ref=${frame}
      sandbox=${`allow-scripts allow-forms${app.origin ? " allow-same-origin" : ""}`}
      referrerpolicy="no-referrer"
      title=${t("app.title", { tool: app.address })}
      src=${(app.origin ?? "") + app.path}
    ></iframe>
    <p class="small muted row">
      <span class="grow">${t("app.from", { server: app.server })}</span>
      <button type="button" class="link" onClick=${close}>${t("app.close")}</button>
    </p>
    ${children}
    ${told &&
    html`<details class="small">
      <summary>${t(`app.told.${told.kind}`)}</summary>
      <pre class="result-text">${marked(told.text)}</pre>
      ${app.fill && html`<button type="button" class="link" onClick=${() => app.fill?.(told.text)}>${t("app.told.use")}</button>`}
    </details>`}
    ${wish && html`<${Question} wish=${wish} server=${app.server} close=${() => setWish(null)} />`}
  </div>`;
}

/** What an app may do only if the person allows it. @param {{wish: Asked, server: string, close: () => void}} props */
function Question({ wish, server, close }) {
  const end = () => {
    wish.done(false); // unless it was done
    close();
  };
  if (wish.kind === "link") {
    const go = async () => {
      window.open(wish.url, "_blank", "noopener,noreferrer");
      wish.done(true);
    };
    return html`<${Confirm} title=${t("app.link", { host: new URL(wish.url).host })} does=${t("app.link.do")} act=${go} close=${end}>
      <p>${t("app.link.from", { server })}</p>
      <p class="mono"><${Foreign} text=${wish.url} /></p>
    <//>`;
  }
  const keep = async () => {
    wish.files.forEach((each) => save(each.blob, each.name));
    wish.done(true);
  };
  return html`<${Confirm} title=${t("app.file", { server })} does=${t("app.file.do")} act=${keep} close=${end}>
    <ul>
      ${wish.files.map((each) => html`<li><${Foreign} text=${each.name} /> <span class="muted">${size(each.blob.size)}</span></li>`)}
    </ul>
  <//>`;
}

/** Our side of the conversation with an app. */
class Host {
  /**
   * @param {{current: HTMLIFrameElement | null}} frame
   * @param {AppOf} app
   * @param {{setWish: (wish: Asked) => void, setTold: (told: Told) => void, stop: () => void}} shown
   */
  constructor(frame, app, shown) {
    this.frame = frame;
    this.app = app;
    this.shown = shown;
    this.times = /** @type {number[]} */ ([]);
  }

  /** Listen until the returned function is called. */
  begin() {
    const listen = (/** @type {MessageEvent} */ event) => this.#heard(event);
    const theme = matchMedia("(prefers-color-scheme: dark)");
    const retheme = () => this.#tell("ui/notifications/host-context-changed", contextOf());
    const watch = new MutationObserver(retheme);
    addEventListener("message", listen);
    theme.addEventListener("change", retheme);
    watch.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      removeEventListener("message", listen);
      theme.removeEventListener("change", retheme);
      watch.disconnect();
      this.#send({ id: 0, method: "ui/resource-teardown", params: { reason: "closed" } });
    };
  }

  /** @param {MessageEvent} event */
  #heard(event) {
    const box = this.frame.current?.contentWindow;
    if (!box || event.source !== box) return;
    const now = performance.now();
    this.times = [...this.times.filter((each) => each > now - 1000), now];
    if (this.times.length > MAX_RATE) {
      this.shown.stop();
      return;
    }
    const message = event.data;
    if (message === null || typeof message !== "object" || message.jsonrpc !== "2.0") return;
    const { id, method } = message;
    if (typeof method !== "string") return; // an answer of the app
    const params = message.params !== null && typeof message.params === "object" ? message.params : {};
    if (id === undefined) {
      this.#noted(method, params);
      return;
    }
    this.#answer(method, params).then(
      (result) => this.#send({ id, result }),
      (error) => this.#send({ id, error: { code: error.code ?? -32603, message: String(error.message) } }),
    );
  }

  /** @param {string} method @param {any} params */
  #noted(method, params) {
    if (method === "ui/notifications/initialized") void this.#hand();
    if (method === "ui/notifications/size-changed" && this.frame.current && Number.isFinite(params.height)) {
      const height = Math.max(MIN_HEIGHT, Math.min(MAX_HEIGHT, Math.round(params.height)));
      this.frame.current.style.height = `${height}px`;
    }
  }

  /** Hand the call to the app: its arguments and its result. */
  async #hand() {
    const call = await this.app.handed();
    this.#tell("ui/notifications/tool-input", { arguments: call.arguments ?? {} });
    if (call.result) this.#tell("ui/notifications/tool-result", call.result);
    else this.#tell("ui/notifications/tool-cancelled", { reason: "no result was kept" });
  }

  /** @param {string} method @param {any} params @returns {Promise<any>} */
  async #answer(method, params) {
    switch (method) {
      case "ui/initialize":
        return this.#introduction();
      case "ping":
        return {};
      case "tools/call":
        return this.#call(params);
      case "ui/open-link":
        return this.#asked({ kind: "link", url: linkOf(params.url) });
      case "ui/download-file":
        return this.#asked({ kind: "file", files: filesOf(params.contents) });
      case "ui/message": {
        const text = textOf(params.content).slice(0, MAX_TEXT);
        if (this.app.fill) this.app.fill(text);
        else this.shown.setTold({ kind: "message", text });
        return {};
      }
      case "ui/update-model-context": {
        const text = textOf(params.content) || stringify(params.structuredContent ?? "");
        this.shown.setTold({ kind: "context", text: text.slice(0, MAX_TEXT) });
        return {};
      }
      case "ui/request-display-mode":
        return { mode: "inline" };
      default:
        throw refused(-32601, `${method} is not supported here`);
    }
  }

  /** Ask the person, and tell the app whether it was done. @param {Wish} wish @returns {Promise<{isError?: boolean}>} */
  #asked(wish) {
    return new Promise((answer) => {
      this.shown.setWish({ ...wish, done: (isDone) => answer(isDone ? {} : { isError: true }) });
    });
  }

  #introduction() {
    return {
      protocolVersion: REVISION,
      hostInfo: { name: "interlock", version: page.version },
      hostCapabilities: {
        openLinks: {},
        downloadFile: {},
        serverTools: {},
        message: { text: {} },
        updateModelContext: { text: {} },
      },
      hostContext: {
        ...contextOf(),
        displayMode: "inline",
        availableDisplayModes: ["inline"],
        containerDimensions: { maxHeight: MAX_HEIGHT },
        locale: navigator.language,
        timeZone: Intl.DateTimeFormat().resolvedOptions().timeZone,
        platform: "web",
        toolInfo: { id: this.app.key, tool: this.app.tool },
      },
    };
  }

  /** @param {any} params */
  async #call(params) {
    if (typeof params.name !== "string") throw refused(-32602, "a tool has a name");
    const given = params.arguments;
    const isObject = given !== null && typeof given === "object" && !Array.isArray(given);
    try {
      return await this.app.call(params.name, isObject ? given : undefined);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      throw refused(-32000, error.message || error.reason);
    }
  }

  /** @param {string} method @param {any} params */
  #tell(method, params) {
    this.#send({ method, params });
  }

  /** @param {Record<string, unknown>} message */
  #send(message) {
    // An opaque origin cannot be named as the target.
    this.frame.current?.contentWindow?.postMessage(JSON.parse(stringify({ jsonrpc: "2.0", ...message })), this.app.origin || "*");
  }
}

/** @param {number} code @param {string} message */
function refused(code, message) {
  return Object.assign(new Error(message), { code });
}

function contextOf() {
  const root = document.documentElement;
  const style = getComputedStyle(root);
  const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const variables = Object.fromEntries(Object.entries(STYLES).map(([name, ours]) => [name, style.getPropertyValue(ours).trim()]));
  return { theme: isDark ? "dark" : "light", styles: { variables } };
}

/** @param {unknown} url */
function linkOf(url) {
  const found = URL.canParse(String(url)) ? new URL(String(url)) : null;
  if (!found || !["http:", "https:", "mailto:"].includes(found.protocol)) throw refused(-32602, "this is not a link to a page");
  return found.href;
}

/** @param {unknown} content */
function textOf(content) {
  const blocks = Array.isArray(content) ? content : [content];
  const texts = blocks.filter((each) => each?.type === "text" && typeof each.text === "string");
  return texts.map((each) => each.text).join("\n");
}

/** @param {unknown} contents @returns {{name: string, blob: Blob}[]} */
function filesOf(contents) {
  const type = "application/octet-stream"; // never one that a browser would run
  const found = (Array.isArray(contents) ? contents : []).slice(0, 10).flatMap((each) => {
    const { uri = "", text, blob } = each?.resource ?? {};
    const name = String(uri).split("/").pop()?.replace(/[^\w. -]/g, "_") || "file";
    if (typeof text === "string") return [{ name, blob: new Blob([text], { type }) }];
    if (typeof blob !== "string") return [];
    return [{ name, blob: new Blob([Uint8Array.from(atob(blob), (letter) => letter.charCodeAt(0))], { type }) }];
  });
  if (found.length === 0) throw refused(-32602, "no file in the request has text or data");
  return found;
}
