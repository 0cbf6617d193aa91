// The TypeScript client: it calls a tool in one session until its stdin ends.
// node typescript_calls.cjs URL KEY, where NODE_PATH has its packages.
"use strict";

const { Client, StreamableHTTPClientTransport } = require("@modelcontextprotocol/client");
const { setTimeout: sleep } = require("node:timers/promises");

const LIMIT = 10_000; // milliseconds of a call

async function main(url, key) {
  let answered = 0;
  let stopped = false;
  const failed = [];
  process.stdin.on("end", () => (stopped = true)).resume();
  const client = new Client(
    { name: "typescript", version: "1" },
    { versionNegotiation: { mode: "legacy" } },
  );
  const requestInit = { headers: { Authorization: `Bearer ${key}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit }));
  while (!stopped) {
    try {
      const put = { name: "c__put", arguments: { id: "rolling" } };
      const result = await client.callTool(put, { timeout: LIMIT });
      if (result.content[0].text !== "rolling") throw new Error(JSON.stringify(result));
      answered += 1;
    } catch (error) {
      failed.push(String(error));
    }
    await sleep(100);
  }
  await client.close();
  console.log(JSON.stringify([answered, failed]));
}

main(...process.argv.slice(2));
