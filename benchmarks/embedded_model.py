"""How often the embedded model picks the right tool, and how long it takes.

    python benchmarks/embedded_model.py [--half tuning|held-out] [--only WORDS] [--quiet]

All tools of three real servers (time, git, mathematics) are offered at once, 35 of them. A
request counts as right when the tool and all its arguments are: the ones listed with the case have
one of the accepted values, and no others are given, unless with the schema's own default. A
request that needs no tool counts as right when none is called.

Plain requests name what they want as the tool does; loose ones are what a person may say who does
not know the tools. All were written down and halved before anything was tuned on them: the figures
to quote are those of the held-out halves.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from interlock.messages import ToolCall, UserMessage
from interlock.models import Reply, ToolDefinition
from interlock.models.local import LocalModel

SERVERS = {"time": "mcp-server-time", "git": "mcp-server-git", "math": "math-mcp"}
CASES = Path(__file__).with_name("embedded_model_cases.json")
LIST_TOOLS = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
        }
    },
}


def tools_of(server: str, program: str) -> list[ToolDefinition]:
    """Ask a server that is installed beside this Python for its tools."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name(program))],
        input=json.dumps(LIST_TOOLS) + "\n",
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    return [
        ToolDefinition(
            f"{server}__{tool['name']}",
            tool.get("description", ""),
            json.dumps(tool["inputSchema"]).encode(),
        )
        for tool in json.loads(done.stdout.splitlines()[0])["result"]["tools"]
    ]


def is_right(case: dict[str, Any], call: ToolCall | None, tools: list[ToolDefinition]) -> bool:
    if call is None or case["tool"] is None:
        return call is None and case["tool"] is None
    if call.name != case["tool"]:
        return False
    schema = next(json.loads(tool.input_schema) for tool in tools if tool.name == call.name)
    accepted = case["arguments"]
    others = {name: value for name, value in call.input.items() if name not in accepted}
    return all(call.input.get(name) in values for name, values in accepted.items()) and all(
        value == schema["properties"][name].get("default", ...) for name, value in others.items()
    )


async def run(cases: list[dict[str, Any]], quiet: bool) -> None:
    tools = [tool for server, program in SERVERS.items() for tool in tools_of(server, program)]
    model = LocalModel()
    start = time.perf_counter()
    await answer(model, "Hello", tools)
    print(f"{len(tools)} tools; loaded, and greeted, in {time.perf_counter() - start:.1f} s")
    rows = []
    for case in cases:
        call, text, first, whole = await answer(model, case["request"], tools)
        right = is_right(case, call, tools)
        rows.append((case, right, first, whole))
        if not quiet or not right:
            did = f"{call.name} {json.dumps(call.input)}" if call else repr(text[:70])
            print(f"{'right' if right else 'WRONG'} {whole:5.2f} s  {case['request']}\n    {did}")
    await model.close()
    print()
    for wording in ("plain", "loose"):
        for half in ("tuning", "held-out"):
            for needs, what in ((True, "right tool and arguments"), (False, "rightly no tool")):
                chosen = [
                    right
                    for case, right, *_ in rows
                    if (case["wording"], case["half"]) == (wording, half)
                    and (case["tool"] is not None) is needs
                ]
                if chosen:
                    print(f"{wording}, {half:9} {what:25} {sum(chosen)} of {len(chosen)}")
    for label, times in (
        ("until decided", [r[2] for r in rows]),
        ("whole answer", [r[3] for r in rows]),
    ):
        print(f"{label:13}: median {statistics.median(times):.2f} s, most {max(times):.2f} s")


async def answer(
    model: LocalModel, request: str, tools: list[ToolDefinition]
) -> tuple[ToolCall | None, str, float, float]:
    """The call or the text, seconds until the first event, seconds until the last."""
    start = time.perf_counter()
    first = 0.0
    async for event in model.stream([UserMessage(request)], tools):
        first = first or time.perf_counter() - start
        if isinstance(event, Reply):
            calls = event.message.tool_calls
            whole = time.perf_counter() - start
            return (calls[0] if calls else None), event.message.content, first, whole
    raise AssertionError("no reply")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--half", choices=["tuning", "held-out"], help="only this half")
    parser.add_argument("--only", default="", help="only requests with these words")
    parser.add_argument("--quiet", action="store_true", help="print only what is wrong")
    options = parser.parse_args()
    cases = [
        case
        for case in json.loads(CASES.read_text())
        if options.half in (None, case["half"]) and options.only.lower() in case["request"].lower()
    ]
    if not cases:
        parser.error("no request has these words")
    asyncio.run(run(cases, options.quiet))


if __name__ == "__main__":
    main()
