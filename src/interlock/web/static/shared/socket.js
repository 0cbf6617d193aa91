// One WebSocket for the page. It comes back by itself, and says where it stands.

import { pageKey } from "./api.js";
import { parseAnswer, stringify } from "./exact.js";
import { signal } from "./view.js";

const WAITS = [500, 1000, 2000, 5000, 10_000]; // milliseconds, ± 20 %
const SILENCE = 45_000; // milliseconds without a frame; the server sends one every 20 s
const LOGIN = 4401;

/**
 * @typedef {object} Line
 * @property {"opening" | "open" | "lost" | "ended"} state "ended": the session is not valid.
 * @property {number} since When it came into this state.
 * @property {number} next When it tries again.
 */

/** @typedef {Record<string, any>} Frame */

/** The connection of this page. */
export class Connection {
  /** @param {(frame: Frame) => void} receive Called with each frame. */
  constructor(receive) {
    this.receive = receive;
    /** Called whenever the line is open again. */
    this.ready = () => {};
    this.line = signal(/** @type {Line} */ ({ state: "opening", since: Date.now(), next: 0 }));
    this.tries = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    this.timer = 0;
    this.watch = 0;
    addEventListener("online", () => this.retry());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.retry();
    });
  }

  get isOpen() {
    return this.line.value.state === "open";
  }

  open() {
    clearTimeout(this.timer);
    const url = new URL("/ws", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url, "interlock.chat.1");
    this.socket = socket;
    this.#listen();
    socket.onopen = () => {
      socket.send(stringify({ type: "hello", key: pageKey() ?? "", client: "web/1" }));
    };
    socket.onmessage = (event) => {
      if (this.socket !== socket) return;
      this.#listen();
      const frame = parseAnswer(event.data);
      if (frame.type === "ping") return;
      if (frame.type === "ready") {
        this.tries = 0;
        this.#is("open");
        this.ready();
      } else {
        this.receive(frame);
      }
    };
    socket.onclose = (event) => {
      if (this.socket === socket) this.#lost(event.code);
    };
  }

  /** Try again now, unless the line is open or about to be. */
  retry() {
    if (this.line.value.state === "lost" && this.socket === null) this.open();
  }

  /**
   * Send a frame; return whether the line is open.
   * @param {Frame} frame
   */
  send(frame) {
    if (!this.isOpen || this.socket?.readyState !== WebSocket.OPEN) return false;
    this.socket.send(stringify(frame));
    return true;
  }

  /** Give up after a while of silence. */
  #listen() {
    clearTimeout(this.watch);
    this.watch = setTimeout(() => {
      const { socket } = this;
      this.#lost(0);
      socket?.close();
    }, SILENCE);
  }

  /** @param {number} code */
  #lost(code) {
    this.socket = null;
    clearTimeout(this.watch);
    if (code === LOGIN) {
      this.#is("ended");
      return;
    }
    const wait = (WAITS[Math.min(this.tries, WAITS.length - 1)] ?? 0) * (0.8 + 0.4 * Math.random());
    this.tries += 1;
    this.#is("lost", Date.now() + wait);
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.open(), wait);
  }

  /** @param {Line["state"]} state @param {number} [next] */
  #is(state, next = 0) {
    const since = this.line.value.state === state ? this.line.value.since : Date.now();
    this.line.value = { state, since, next };
  }
}
