// A turn with the unmodified chat transport of the AI SDK. Prints what it saw as JSON.
//
//     node aisdk.mjs NODE_MODULES URL TOKEN SCENARIO
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [modules, url, token, scenario] = process.argv.slice(2);
const require = createRequire(`${modules}/x.js`);
const { DefaultChatTransport, readUIMessageStream } = await import(
  pathToFileURL(require.resolve("ai")).href
);

const transport = new DefaultChatTransport({
  api: `${url}/api/chat`,
  headers: { authorization: `Bearer ${token}` },
});
const messages = [{ id: "u1", role: "user", parts: [{ type: "text", text: "go" }] }];
const types = [];
const errors = [];

async function run(last) {
  const stream = await transport.sendMessages({
    chatId: `chat-${scenario}`,
    messages,
    trigger: "submit-message",
    messageId: undefined,
    abortSignal: undefined,
  });
  const [seen, read] = stream.tee();
  const watching = (async () => {
    for await (const chunk of seen) {
      if (types.at(-1) !== chunk.type) types.push(chunk.type);
      if (chunk.type === "error") errors.push(chunk.errorText);
      if (scenario === "stop" && chunk.type === "tool-input-available") await stop();
    }
  })();
  let message = last;
  for await (const each of readUIMessageStream({ message: last, stream: read, onError: () => {} })) {
    message = each;
  }
  await watching;
  return message;
}

async function stop() {
  await fetch(`${url}/api/chat/stop`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ id: `chat-${scenario}` }),
  });
}

let reply = await run(undefined);
if (scenario === "approval") {
  for (const part of reply.parts) {
    if (part.state === "approval-requested") {
      part.state = "approval-responded";
      part.approval = { ...part.approval, approved: true };
    }
  }
  messages.push(reply);
  reply = await run(structuredClone(reply));
}
console.log(JSON.stringify({ types, errors, parts: reply?.parts ?? [] }));
