// Requests to the server. The page key proves that a request comes from this page; the cookie
// alone would not.

import { parseAnswer, stringify } from "./exact.js";

/** A request that the server refused. */
export class ApiError extends Error {
  /**
   * @param {number} status 0 if the server cannot be reached.
   * @param {string} reason A stable word.
   * @param {string} detail A sentence.
   * @param {string} reference What finds the record of the refusal.
   */
  constructor(status, reason, detail, reference = "") {
    super(detail);
    this.status = status;
    this.reason = reason;
    this.reference = reference;
  }
}

const STORED = "interlock-key";

/** @returns {string | null} */
export function pageKey() {
  return localStorage.getItem(STORED);
}

/** @param {string | null} key */
export function setPageKey(key) {
  if (key === null) localStorage.removeItem(STORED);
  else localStorage.setItem(STORED, key);
}

/**
 * Send a request and return its JSON.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function request(method, path, body, signal) {
  return (await exchange(method, path, body, signal)).data;
}

/**
 * Return a part of a list, and the path of the next part; "" if there is none.
 * @param {string} path
 * @param {AbortSignal} [signal]
 * @returns {Promise<{items: any[], next: string}>}
 */
export async function getPart(path, signal) {
  const { data, link } = await exchange("GET", path, undefined, signal);
  return { items: data ?? [], next: /<([^>]+)>;\s*rel="next"/.exec(link)?.[1] ?? "" };
}

/**
 * @param {string} method
 * @param {string} path
 * @param {unknown} body
 * @param {AbortSignal} [signal]
 * @returns {Promise<{data: any, link: string}>}
 */
async function exchange(method, path, body, signal) {
  const key = pageKey();
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  if (key) headers["X-Interlock-Key"] = key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? null : stringify(body),
      signal: signal ?? null,
      cache: "no-store",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new ApiError(0, "offline", "");
  }
  const text = await response.text();
  let found = null;
  try {
    found = text ? parseAnswer(text) : null;
  } catch {
    if (response.ok) throw new ApiError(response.status, "bad_answer", "");
  }
  if (response.ok) return { data: found, link: response.headers.get("Link") ?? "" };
  const detail = found?.detail ?? found?.title ?? found?.error?.message ?? response.statusText;
  const reason = found?.reason ?? found?.error?.code ?? String(response.status);
  throw new ApiError(response.status, reason, detail, found?.reference ?? "");
}

/** @param {string} path @param {AbortSignal} [signal] */
export const get = (path, signal) => request("GET", path, undefined, signal);

/** @param {string} path @param {unknown} [body] */
export const post = (path, body = {}) => request("POST", path, body);
