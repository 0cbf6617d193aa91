"""The requests that a gateway's histograms of operations count, and their labels."""

from __future__ import annotations

import re
from contextlib import suppress

import pytest

from interlock import Client, revisions
from interlock.auth import Principal
from interlock.errors import RemoteError
from interlock.telemetry import names
from interlock.types import ElicitParams, ElicitResult
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.gateway.support import as_principal
from tests.support.scripted_server import LEGACY, Json, text, tool

MODERN = revisions.NEWEST
ANNA = Principal("user:anna", frozenset({"mcp:*"}))
NAMES = 1_200
LINES = 120
DENIED = {"a": {"const": 1}}

pytestmark = pytest.mark.slow("fills a database")


def lines(gateway: RunningGateway) -> list[str]:
    return gateway.assembly.services.metrics.text().splitlines()


def operations(gateway: RunningGateway, side: str) -> dict[tuple[str, str, str], int]:
    """Return the numbers of operations by method, tool and type of error."""
    found: dict[tuple[str, str, str], int] = {}
    for line in lines(gateway):
        if line.startswith(f"mcp_{side}_operation_duration_seconds_count"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', line))
            kinds = ("mcp_method_name", "gen_ai_tool_name", "error_type")
            key = tuple(labels.get(kind, "") for kind in kinds)
            found[key] = found.get(key, 0) + int(line.rpartition(" ")[2])  # type: ignore[index]
    return found


@pytest.mark.parametrize("revision", [LEGACY, MODERN])
async def test_each_request_is_one_operation_whether_or_not_it_becomes_a_call(
    revision: str, running
):
    crm = offering("x")
    crm.answers["tools/list"]["tools"].append(  # type: ignore[index]
        tool("broken", inputSchema={"type": "object", "$ref": "https://example.org/x"})
    )
    rules = [
        {"id": "no", "effect": "deny", "who": ["*"], "tools": ["crm:x"], "arguments": DENIED},
        {"id": "all", "effect": "allow", "who": ["*"], "tools": ["*:*"]},
    ]
    async with running({"policy": {"rules": rules}}, crm=crm) as gateway:
        server = as_principal(gateway.assembly.server, ANNA)
        async with Client.memory(server, revision=revision) as client:
            await client.list_tools()
            await client.call_tool("crm__x")
            await client.call_tool("interlock__read_result", {"id": "r_0"})
            for name, arguments in (("crm__x", {"a": 1}), ("crm__broken", {}), ("made_up", {})):
                with suppress(RemoteError):
                    await client.call_tool(name, arguments)
            for request in (
                client.read_resource("made:up"),
                client.get_prompt("made-up"),
                client.request("made/up"),
            ):
                with suppress(RemoteError):
                    await request

        handshake = "initialize" if revision == LEGACY else "server/discover"
        served = operations(gateway, "server")
        assert served == {
            (handshake, "", ""): 1,
            ("tools/list", "", ""): 1,
            ("tools/call", "crm:x", ""): 1,
            ("tools/call", "crm:x", "denied_by_rule"): 1,
            ("tools/call", "interlock:read_result", "arguments_invalid"): 1,
            ("tools/call", "crm:broken", "tool_invalid"): 1,
            ("tools/call", "", "unknown_tool"): 1,
            ("resources/read", "", "-32002" if revision == LEGACY else "-32602"): 1,
            ("prompts/get", "", "arguments_invalid"): 1,
            (names.OTHER, "", "-32601"): 1,
        }
        assert operations(gateway, "client") == {  # the server is legacy
            ("server/discover", "", "-32601"): 1,
            ("initialize", "", ""): 1,
            ("tools/list", "", ""): 1,
            ("tools/call", "crm:x", ""): 1,
        }


async def test_each_round_of_a_call_with_questions_is_one_operation(running):
    asking = offering("x")

    async def ask(_: Json) -> Json:
        form = {"type": "object", "properties": {}}
        for _ in range(2):
            await asking.ask("elicitation/create", {"message": "?", "requestedSchema": form})
        return text("done")

    async def agree(_: ElicitParams) -> ElicitResult:
        return ElicitResult(action="accept", content={})

    asking.answers["tools/call"] = ask
    async with running(crm=asking) as gateway:
        server = as_principal(gateway.assembly.server, ANNA)
        async with Client.memory(server, revision=MODERN, elicitation=agree) as client:
            assert (await client.call_tool("crm__x")).text == "done"
        await gateway.settle()

        assert operations(gateway, "server")["tools/call", "crm:x", ""] == 3


async def test_names_that_callers_make_up_add_no_labels(running):
    async with running(crm=offering("x")) as gateway:
        headers = bearer(await gateway.key())
        before = len(lines(gateway))
        for number in range(NAMES):
            name = f"canary_{number}"
            client = {revisions.CLIENT_INFO_KEY: {"name": name, "version": name}}
            for method, params in (
                ("tools/call", {"name": name, "arguments": {name: name}}),
                ("prompts/get", {"name": name}),
                ("resources/read", {"uri": f"canary://{name}"}),
                (f"canary/{name}", {}),
            ):
                await gateway.http.ask(method, params, headers=headers, meta=client)
        after = lines(gateway)

    assert len(after) - before <= LINES
    assert "canary" not in "".join(after)
    assert operations_of_errors(after) == NAMES * 4


def operations_of_errors(found: list[str]) -> int:
    """Return the number of requests of clients that failed."""
    counts = (each for each in found if "server_operation_duration_seconds_count" in each)
    return sum(int(each.rpartition(" ")[2]) for each in counts if "error_type" in each)
