// What the server says about an inspection, and what a form shows.

/** An object, or true or false. */
export type Schema = any;

export interface Property {
  name: string;
  schema: Schema;
  required: boolean;
}

export interface Shape {
  kind: "object" | "array" | "text" | "number" | "boolean" | "null" | "const" | "choice" | "variants" | "json";
  /** With references followed and `allOf` merged. */
  schema: Schema;
  /** Of an object. */
  fields?: Property[];
  /** The schema of further members; null if there are none. */
  others?: Schema | null;
  /** The schemas of the first items of an array. */
  first?: Schema[];
  /** That of the other items; null if there are none. */
  items?: Schema | null;
  choices?: any[];
  variants?: Schema[];
  /** Why it is shown as JSON. */
  why?: string;
}

/** A line of the wire. */
export interface Entry {
  n: number;
  /** Seconds since the inspection began. */
  at: number;
  kind: "sent" | "received" | "spawn" | "stderr" | "exit" | "http" | "lost";
  size: number;
  text: string;
  form?: "request" | "notification" | "result" | "error" | "invalid";
  method?: string;
  name?: string;
  id?: string | number;
  of?: number;
  ms?: number;
  problem?: string;
  isCut?: boolean;
}

/** How a call ended. */
export interface Card {
  call: string;
  method: string;
  address: string;
  name: string;
  arguments: any;
  params: any;
  at: string;
  state: import("../shared/outcomes.js").Outcome;
  reason: string;
  text?: string;
  ms: number;
  size?: number;
  result?: any;
  check?: string[] | null;
  /** Where a large result is cut, by JSON pointer: the offset of the next part, and the whole size. */
  cuts?: Record<string, [number, number]>;
  entries: [number, number];
}

export interface Item {
  definition: any;
  effect?: "allow" | "ask" | "deny";
  risk?: string;
  reason?: string;
  rule?: string;
}

export interface Remark {
  /** "server", or the kind and the name of an item: "tool:find". */
  about: string;
  text: string;
  level: "error" | "advice";
}

export interface Inspection {
  id: string;
  server: string;
  kind: string;
  era: string;
  state: "starting" | "ok" | "failed" | "down" | "closed";
  reason: string;
  revision: string;
  as: string;
  version: number;
  tools: Item[];
  unusable: { name: string; problem: string }[];
  resources: Item[];
  resourceTemplates: Item[];
  prompts: Item[];
  problems: string[];
  remarks: Remark[];
  history: Card[];
  running: string[];
  asks: any[];
  serverInfo?: string;
  instructions?: string | null;
  capabilities?: any;
}

/** What can be called or read. */
export interface Target {
  kind: "tool" | "resource" | "template" | "prompt";
  name: string;
  item: Item;
}
