"""A manual call exported as runnable text: as Python code, a shell command and a test."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any

from interlock.config import HttpServer, StdioServer
from interlock.text.surrogates import path_text
from interlock.types import JsonObject
from interlock.web.inspector.inspection import Inspection

LINE = 68  # characters; a longer value is written on lines of its own

_PYTHON = """import asyncio
from pathlib import Path

from interlock import Toolbox
from interlock.config import load

SERVERS = load(Path({path})).servers
ARGUMENTS = {arguments}


async def main() -> None:
    async with Toolbox({{{key}: SERVERS[{key}]}}) as toolbox:
        result = await toolbox.call({address}, ARGUMENTS)
    print(result.text)


asyncio.run(main())
"""

_TEST = """import asyncio
from pathlib import Path

from interlock import Toolbox
from interlock.config import load
from interlock.types import CallToolResult

SERVERS = load(Path({path})).servers
ARGUMENTS = {arguments}


async def call() -> CallToolResult:
    async with Toolbox({{{key}: SERVERS[{key}]}}) as toolbox:
        return await toolbox.call({address}, ARGUMENTS)


def test_{name}_returns_what_it_returned() -> None:
    result = asyncio.run(call())

    assert not result.is_error, result.text
{expected}"""


def of_call(inspection: Inspection, tool: str, arguments: JsonObject) -> JsonObject:
    """Return the texts, or a reason if there are none because no file configures the server.

    Args:
        inspection: The inspection in which the tool was called. The test expects the result of
            the last call of the tool with these arguments.
        tool: The name of the tool.
        arguments: The arguments that were sent.
    """
    path, connection = inspection.host.path, inspection.connection
    key = _key(inspection)
    if path is None or key is None:
        return {"reason": "not_in_file"}
    if not isinstance(connection.server, StdioServer | HttpServer):
        return {"reason": "not_on_its_own"}
    address = f"{connection.name}:{tool}"
    fields = {
        "path": _literal(path_text(path)),
        "key": _literal(key),
        "address": _literal(address),
        "arguments": _literal(arguments),
    }
    command = ["interlock", "call", address, "--config", path_text(path)]
    command += ["--arguments", json.dumps(arguments, ensure_ascii=False)]
    name = re.sub(r"\W", "_", tool).lower()
    return {
        "python": _PYTHON.format(**fields),
        "command": shlex.join(command) + "\n",
        "test": _TEST.format(name=name, expected=_expected(inspection, tool, arguments), **fields),
    }


def _key(inspection: Inspection) -> str | None:
    for key, server in inspection.host.servers().items():
        if server == inspection.connection.server:
            return key
    return None


def _expected(inspection: Inspection, tool: str, arguments: JsonObject) -> str:
    for card in reversed(inspection.history):
        if (card["name"], card["arguments"], card["state"]) != (tool, arguments, "ran"):
            continue
        result: Any = card.get("result")
        if isinstance(result, dict) and "structuredContent" in result:
            return (
                f"    assert result.structured == {_literal(result['structuredContent'], '    ')}\n"
            )
        content = result.get("content") if isinstance(result, dict) else None
        blocks = content if isinstance(content, list) else []
        if blocks and all(each.get("type") == "text" for each in blocks):
            text = "\n".join(each["text"] for each in blocks)
            return f"    assert result.text == {_literal(text)}\n"
        return ""
    return ""


def _literal(value: Any, indent: str = "") -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if not isinstance(value, dict | list) or not value:
        return repr(value)
    inner = indent + "    "
    if isinstance(value, dict):
        parts = [f"{_literal(key)}: {_literal(each, inner)}" for key, each in value.items()]
        first, last = "{", "}"
    else:
        parts, first, last = [_literal(each, inner) for each in value], "[", "]"
    line = first + ", ".join(parts) + last
    if len(indent) + len(line) <= LINE and "\n" not in line:
        return line
    return first + "".join(f"\n{inner}{part}," for part in parts) + f"\n{indent}{last}"
