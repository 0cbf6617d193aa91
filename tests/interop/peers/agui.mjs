// A turn with the unmodified client of AG-UI. Prints what it saw as JSON.
//
//     node agui.mjs NODE_MODULES URL TOKEN SCENARIO
import { createRequire } from "node:module";

const [modules, url, token, scenario] = process.argv.slice(2);
const require = createRequire(`${modules}/x.js`);
const { HttpAgent } = require("@ag-ui/client");

const agent = new HttpAgent({
  url: `${url}/ag-ui`,
  threadId: `thread-${scenario}`,
  headers: { authorization: `Bearer ${token}` },
});
const types = [];
const outcomes = [];
const errors = [];
const subscriber = {
  onEvent: ({ event }) => {
    if (types.at(-1) !== event.type) types.push(event.type);
    if (event.type === "RUN_FINISHED") outcomes.push(event.outcome);
    if (event.type === "RUN_ERROR") errors.push(event.code);
    if (scenario === "stop" && event.type === "TOOL_CALL_END") stop();
  },
};

async function stop() {
  await fetch(`${url}/ag-ui/stop`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${token}` },
    body: JSON.stringify({ threadId: agent.threadId, runId: "stop" }),
  });
}

async function run(parameters) {
  try {
    await agent.runAgent(parameters, subscriber);
  } catch (error) {
    errors.push(String(error.message ?? error).slice(0, 200));
  }
}

agent.addMessage({ id: "u1", role: "user", content: "go" });
await run({});
if (scenario === "approval") {
  const interrupts = outcomes[0].interrupts;
  await run({
    resume: interrupts.map((each) => ({
      interruptId: each.id,
      status: "resolved",
      payload: { decision: "allow" },
    })),
  });
}
console.log(JSON.stringify({ types, outcomes, errors, messages: agent.messages }));
