"""Makes tools of an OpenAPI document: python -m benchmarks.peers.openapi_tools NAME TASK FILE.

NAME is interlock, fastmcp or bare, which only decodes the document. TASK is "tools", for the
operations that stdin lists, "plan" or "styles". The answer on stdout is a JSON object of figures.
Seconds are processor time. Imports are not counted.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import msgspec

COUNT = 30  # tools
PLANS = 2_000


def chosen(data: bytes) -> list[tuple[str, str]]:
    """Return the operations that become tools, spread over the document."""
    root = decode(data)
    methods = ("get", "put", "post", "delete", "patch")
    found = [
        (method.upper(), path)
        for path, item in root["paths"].items()
        for method in methods
        if method in item
    ]
    return found[:: max(1, len(found) // COUNT)][:COUNT]


def decode(data: bytes) -> Any:
    if data.startswith(b"{"):
        return msgspec.json.decode(data)
    import yaml

    return yaml.load(data, Loader=yaml.CSafeLoader)


# interlock


def interlock_plans(data: bytes, keys: list[tuple[str, str]]) -> dict[str, Any]:
    from interlock.openapi import document, plan, selection

    tools = {f"tool{i}": f"{method} {path}" for i, (method, path) in enumerate(keys)}
    plans, missing = plan.compile_tools(document.read(data), selection.read_tools(tools))
    assert not missing, missing
    return plans


def interlock_tools(data: bytes, keys: list[tuple[str, str]]) -> list[Any]:
    return [plan.definition for plan in interlock_plans(data, keys).values()]


def interlock_request(data: bytes, key: tuple[str, str]) -> Callable[[Any], Any]:
    return interlock_plans(data, [key])["tool0"].request


def interlock_sends(data: bytes, key: tuple[str, str], logical: Any) -> tuple[str, Any, Any]:
    plan = interlock_plans(data, [key])["tool0"]
    arguments = {
        name: logical[place["in"], place["name"]] for name, place in plan.arguments.items()
    }
    request = plan.request(arguments)
    return request.target, request.headers, request.body


# FastMCP


def fastmcp_server(root: Any, keys: list[tuple[str, str]]) -> Any:
    import httpx2
    from fastmcp import FastMCP
    from fastmcp.server.providers.openapi import MCPType

    wanted = set(keys)

    def choose(route: Any, _kind: Any) -> MCPType:
        return MCPType.TOOL if (route.method, route.path) in wanted else MCPType.EXCLUDE

    client = httpx2.AsyncClient(base_url="http://localhost")
    return FastMCP.from_openapi(root, client, route_map_fn=choose)


def fastmcp_tools(data: bytes, keys: list[tuple[str, str]]) -> list[Any]:
    server = fastmcp_server(decode(data), keys)
    tools = asyncio.run(server.list_tools())
    return [tool.to_mcp_tool().model_dump(exclude_none=True, mode="json") for tool in tools]


def fastmcp_tool(data: bytes, key: tuple[str, str]) -> Any:
    return asyncio.run(fastmcp_server(decode(data), [key]).list_tools())[0]


def fastmcp_request(data: bytes, key: tuple[str, str]) -> Callable[[Any], Any]:
    tool = fastmcp_tool(data, key)
    return lambda arguments: tool._director.build(tool._route, arguments, "http://localhost")


def fastmcp_sends(data: bytes, key: tuple[str, str], logical: Any) -> tuple[str, Any, Any]:
    tool = fastmcp_tool(data, key)
    arguments = {
        name: logical[place["location"], place["openapi_name"]]
        for name, place in tool._route.parameter_map.items()
    }
    request = tool._director.build(tool._route, arguments, "http://localhost")
    headers = [(name.title(), value) for name, value in request.headers.items()]
    return request.url.raw_path.decode(), headers, request.read() or None


# Tasks


def tools(name: str, data: bytes) -> dict[str, float]:
    keys = [(method, path) for method, path in json.load(sys.stdin)]
    make = {"interlock": interlock_tools, "fastmcp": fastmcp_tools, "bare": bare_tools}[name]
    _warm(name)
    before = memory("VmRSS")
    started = process_time()
    made = make(data, keys)
    seconds = process_time() - started
    peak = memory("VmHWM")
    sizes = [len(json.dumps(tool)) for tool in made]
    return {
        "seconds": seconds,
        "megabytes": peak - before,
        "largest": max(sizes, default=0) / 1024,
    }


def memory(which: str) -> float:
    """Return the memory of this process in MB, now ("VmRSS") or at its peak ("VmHWM").

    `getrusage` would count the peak of the parent as well. Without /proc the answer is 0.
    """
    status = Path("/proc/self/status")
    found = re.search(rf"{which}:\s+(\d+) kB", status.read_text()) if status.exists() else None
    return int(found[1]) / 1024 if found else 0.0


def bare_tools(data: bytes, _keys: Any) -> list[Any]:
    decode(data)
    return []


def _warm(name: str) -> None:
    """Import what is needed, with a document of one operation."""
    small = (
        b'{"openapi":"3.0.0","info":{"title":"","version":""},'
        b'"paths":{"/x":{"get":{"responses":{}}}}}'
    )
    if name != "bare":
        {"interlock": interlock_tools, "fastmcp": fastmcp_tools}[name](small, [("GET", "/x")])


def plan(name: str, data: bytes) -> dict[str, float]:
    """Return the seconds that one request takes to make: a path, and two queries."""
    key = ("GET", "/repos/{owner}/{repo}/issues")
    make = {"interlock": interlock_request, "fastmcp": fastmcp_request}[name](data, key)
    arguments = {"owner": "octo", "repo": "hello world", "state": "open", "per_page": 50}
    make(arguments)
    started = process_time()
    for _ in range(PLANS):
        make(arguments)
    return {"seconds": (process_time() - started) / PLANS}


def styles(name: str, data: bytes) -> dict[str, float]:
    """Return for how many operations the arguments do not arrive as meant."""
    from tests.openapi import decoding, test_tools

    root, plans = decode(data), interlock_plans(data, all_keys(data))
    sends = {"interlock": interlock_sends, "fastmcp": fastmcp_sends}[name]
    reader, wrong = decoding.Reader(root), 0
    for each in plans.values():
        given = test_tools.arguments_for(each, "all")
        logical = {
            (each.arguments[name]["in"], each.arguments[name]["name"]): value
            for name, value in given.items()
        }
        try:
            sent = sends(data, tuple(each.operation.key.split(" ", 1)), logical)
            test_tools.compare(each, reader, given, *sent)
        except Exception:
            wrong += 1
    return {"wrong": wrong, "of": len(plans)}


def all_keys(data: bytes) -> list[tuple[str, str]]:
    from interlock.openapi import document

    return [tuple(key.split(" ", 1)) for key in document.read(data).keys]


if __name__ == "__main__":
    who, task, file = sys.argv[1:]
    print(json.dumps(globals()[task](who, Path(file).read_bytes())))
