// The TypeScript client, in both eras. It does what `story.py` does, in the same order: a line of
// stdin is a JSON list of era, and URL or command; a line of stdout is what was seen.
// NODE_PATH has its packages.
"use strict";

const {
  Client,
  SSEClientTransport,
  StreamableHTTPClientTransport,
} = require("@modelcontextprotocol/client");
const { createInterface } = require("node:readline");
const { StdioClientTransport } = require("@modelcontextprotocol/client/stdio");

const SAMPLED = {
  role: "assistant",
  content: { type: "text", text: "Short is good" },
  model: "scripted",
};
const FORM = { sure: true, author: "Ada" };
const LIMIT = 20_000; // milliseconds for a notification to come

async function tell(client, heard) {
  const seen = {
    revision: client.getNegotiatedProtocolVersion(),
    name: client.getServerVersion().name,
    instructions: client.getInstructions(),
    tools: names(await client.listTools(), "tools"),
    ...(await useTools(client, heard)),
    ...(await beAsked(client)),
    ...(await useTheRest(client)),
  };
  const watched = await watch(client, "notes://shopping");
  await call(client, "write", { name: "shopping", text: "apples" });
  await call(client, "pin", { name: "welcome" });
  seen.heard = await heard.wait(["notes://shopping", "prompts", "resources", "tools"]);
  await watched();
  const tools = names(await client.listTools(undefined, { cacheMode: "refresh" }), "tools");
  seen.new_tools = tools.filter((name) => !seen.tools.includes(name));
  seen.pinned = textOf(await call(client, "read_welcome", {}));
  return seen;
}

async function useTools(client, heard) {
  const found = await call(client, "search", { query: "APPLES", limit: 2 });
  const counted = await client.callTool({
    name: "count_words",
    arguments: {},
    _meta: { "io.modelcontextprotocol/logLevel": "info" },
  });
  const attached = await call(client, "attach", { name: "travel" });
  const painted = await call(client, "swatch", { color: "red" });
  const wrong = await call(client, "search", { query: "a", limit: 0 });
  const missing = await call(client, "delete", { name: "nothing" });
  // It forgets who waits for progress when the result comes in the same piece, so not of
  // `count_words`, which is as fast as that.
  const steps = [];
  const tidied = await client.callTool(
    { name: "tidy", arguments: {} },
    { onprogress: ({ progress, total, message }) => steps.push([progress, total, message]) },
  );
  return {
    found: found.structuredContent,
    found_text: JSON.parse(textOf(found)),
    counted: counted.structuredContent,
    steps,
    logs: heard.logs,
    attached: attached.content.map((block) => block.type),
    painted: painted.content.map((block) => block.mimeType),
    wrong: [wrong.isError, textOf(wrong)],
    missing: [missing.isError, textOf(missing)],
    tidied: textOf(tidied),
    unknown: await codeOf(call(client, "nothing", {})),
  };
}

async function beAsked(client) {
  return {
    deleted: textOf(await call(client, "delete", { name: "travel" })),
    summary: textOf(await call(client, "summarize", { name: "welcome" })),
    folders: textOf(await call(client, "folders", {})),
    signed: textOf(await call(client, "sign", { name: "shopping" })),
  };
}

async function useTheRest(client) {
  const [logo] = (await client.readResource({ uri: "notes://logo" })).contents;
  const review = await client.getPrompt({
    name: "review",
    arguments: { name: "welcome", tone: "curt" },
  });
  const ofNote = { type: "ref/resource", uri: "notes://{name}" };
  const ofReview = { type: "ref/prompt", name: "review" };
  return {
    resources: (await client.listResources()).resources.map((each) => each.uri),
    templates: (await client.listResourceTemplates()).resourceTemplates.map(
      (each) => each.uriTemplate,
    ),
    note: (await client.readResource({ uri: "notes://welcome" })).contents[0].text,
    logo: [logo.mimeType, logo.blob.slice(0, 8)],
    no_resource: await codeOf(client.readResource({ uri: "nothing://here" })),
    no_note: await codeOf(client.readResource({ uri: "notes://nothing" })),
    prompts: names(await client.listPrompts(), "prompts"),
    review: review.messages.map((message) => message.content.text),
    names: await proposals(client, ofNote, "name", "w", {}),
    tones: await proposals(client, ofReview, "tone", "c", { name: "welcome" }),
    no_prompt: await codeOf(client.getPrompt({ name: "nothing", arguments: {} })),
  };
}

async function watch(client, uri) {
  if (client.getProtocolEra() !== "modern") {
    await client.subscribeResource({ uri });
    return () => client.unsubscribeResource({ uri });
  }
  const subscription = await client.listen({
    toolsListChanged: true,
    promptsListChanged: true,
    resourcesListChanged: true,
    resourceSubscriptions: [uri],
  });
  return () => subscription.close();
}

// Small things

const call = (client, name, given) => client.callTool({ name, arguments: given });
const names = (page, member) => page[member].map((each) => each.name);
const textOf = ({ content }) =>
  content.filter((block) => block.type === "text").map((block) => block.text).join("\n");

async function proposals(client, ref, name, value, before) {
  const context = { arguments: before };
  return (await client.complete({ ref, argument: { name, value }, context })).completion.values;
}

async function codeOf(request) {
  try {
    return `no error: ${JSON.stringify(await request)}`;
  } catch (error) {
    return error.code;
  }
}

class Heard {
  logs = [];
  #changes = new Set();
  #more = () => {};

  add(change) {
    this.#changes.add(change);
    this.#more();
  }

  async wait(wanted) {
    const late = setTimeout(() => {
      throw new Error(`heard only ${[...this.#changes]}`);
    }, LIMIT);
    while (!wanted.every((each) => this.#changes.has(each))) {
      await new Promise((resolve) => {
        this.#more = resolve;
      });
    }
    clearTimeout(late);
    return [...this.#changes].sort();
  }
}

// Connecting

function connectedClient(era, heard) {
  const client = new Client(
    { name: "typescript", version: "1" },
    {
      capabilities: { roots: {}, sampling: {}, elicitation: {} },
      versionNegotiation: { mode: era },
    },
  );
  client.setRequestHandler("roots/list", () => ({ roots: [{ uri: "file:///work" }] }));
  client.setRequestHandler("sampling/createMessage", () => SAMPLED);
  client.setRequestHandler("elicitation/create", ({ params }) => {
    const fields = Object.keys(params.requestedSchema.properties);
    const content = Object.fromEntries(fields.map((name) => [name, FORM[name]]));
    return { action: "accept", content };
  });
  client.setNotificationHandler("notifications/message", ({ params }) => {
    heard.logs.push([params.level, params.logger, params.data]);
  });
  client.setNotificationHandler("notifications/resources/updated", ({ params }) => {
    heard.add(params.uri);
  });
  for (const kind of ["tools", "prompts", "resources"]) {
    client.setNotificationHandler(`notifications/${kind}/list_changed`, () => heard.add(kind));
  }
  return client;
}

function transportTo(target) {
  if (target.length > 1) {
    return new StdioClientTransport({ command: target[0], args: target.slice(1) });
  }
  const url = new URL(target[0]);
  return url.pathname.endsWith("/sse")
    ? new SSEClientTransport(url)
    : new StreamableHTTPClientTransport(url);
}

async function main([era, ...target]) {
  const heard = new Heard();
  const client = connectedClient(era, heard);
  await client.connect(transportTo(target));
  if (client.getProtocolEra() !== "modern") {
    await client.setLoggingLevel("info");
    await client.ping();
  }
  console.log(JSON.stringify(await tell(client, heard)));
  await client.close();
}

(async () => {
  for await (const line of createInterface({ input: process.stdin })) {
    await main(JSON.parse(line));
  }
})();
