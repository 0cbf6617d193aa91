"""Large results through a gateway, in every revision."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from interlock import Client
from interlock.auth import Principal
from interlock.errors import RemoteError
from interlock.revisions import ALL
from tests.gateway.conftest import bearer
from tests.gateway.support import as_principal
from tests.support.scripted_server import LEGACY, ScriptedServer, text, tool

LINES = "".join(f"line {number}\n" for number in range(20_000))
ANNA, BERT = (Principal(f"user:{name}", frozenset({"mcp:*"})) for name in ("anna", "bert"))


def library() -> ScriptedServer:
    tools = {"tools": [tool("x")]}
    return ScriptedServer(LEGACY, {"tools/list": tools, "tools/call": text(LINES)})


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("revision", ALL)
async def test_user_reads_the_rest_of_a_large_result_in_every_revision(running, revision: str):
    async with running(s=library()) as running_gateway:
        gateway = running_gateway.assembly.server
        async with (
            Client.memory(as_principal(gateway, ANNA), revision=revision) as anna,
            Client.memory(as_principal(gateway, BERT), revision=revision) as bert,
        ):
            result = await anna.call_tool("s__x")
            excerpt, sentence = (each.text for each in result.content[:2])  # type: ignore[union-attr]
            arguments = msgspec.json.decode(sentence.partition("interlock__read_result ")[2])
            rest = await anna.call_tool("interlock__read_result", arguments | {"limit": 1})
            uri = f"interlock://results/{arguments['id']}"
            whole = await anna.read_resource(uri)
            foreign = await bert.call_tool("interlock__read_result", arguments)
            with pytest.raises(RemoteError) as refused:
                await bert.read_resource(uri)
            with pytest.raises(RemoteError) as absent:
                await bert.read_resource("interlock://results/r_0")
        page = running_gateway.assembly.services.metrics.text()

    assert excerpt + rest.content[0].text == "".join(  # type: ignore[union-attr]
        f"line {number}\n" for number in range(arguments["line"])
    )
    assert whole.text == LINES
    links = [each for each in result.content if type(each).__name__ == "ResourceLink"]
    assert len(links) == (revision >= "2025-06-18")
    assert foreign.is_error
    assert "no kept result" in foreign.text
    assert refused.value.code == absent.value.code
    assert "interlock_kept_bytes 2" in page


@pytest.mark.slow("fills a database")
async def test_record_of_a_call_names_the_result_that_was_kept_or_read(running, tmp_path: Path):
    async with running(s=library()) as gateway:
        key = await gateway.key()
        reply = await gateway.call("s__x", key)
        id = reply.json["result"]["_meta"]["interlock/result"]["id"]
        await gateway.call("interlock__read_result", key, id=id, line=2)

    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database:
        rows = database.execute("SELECT tool, body FROM audit WHERE kind = 'outcome' ORDER BY seq")
        outcomes = [(tool, msgspec.json.decode(body)) for tool, body in rows]
        (user, size) = database.execute("SELECT user, bytes FROM kept_results").fetchone()
    assert [(tool, body["kept"]) for tool, body in outcomes] == [
        ("s:x", id),
        ("interlock:read_result", id),
    ]
    assert min(size, outcomes[0][1]["bytes"]) > len(LINES)
    assert user == "user:anna"


@pytest.mark.slow("fills a database")
async def test_kept_result_can_be_subscribed_to_and_names_no_server(running):
    async with running(s=library()) as gateway:
        memory = as_principal(gateway.assembly.server, ANNA)
        async with Client.memory(memory, revision=LEGACY) as client:
            about = (await client.call_tool("s__x")).meta["interlock/result"]
            params = {"uri": f"interlock://results/{about['id']}"}
            assert bytes(await client.request("resources/subscribe", params)) == b"{}"


@pytest.mark.slow("fills a database")
async def test_reload_changes_the_budget_and_turns_it_off(running):
    server = library()
    async with running({"results": {"max": 2_000}}, s=server) as gateway:
        key = await gateway.key()
        assert len((await gateway.call("s__x", key)).body) < 2_500
        await gateway.reload({"results": {"max": 0}}, s=server)
        assert len((await gateway.call("s__x", key)).body) > len(LINES)
        reply = await gateway.http.ask("tools/list", headers=bearer(key))
        assert [each["name"] for each in reply.json["result"]["tools"]] == ["s__x"]


@pytest.mark.slow("fills a database")
async def test_user_whose_rules_and_scopes_name_one_server_can_read_on(running):
    rules = [
        {"id": "r", "effect": "allow", "who": ["user:anna"], "tools": ["s:*"]},
        {"id": "no", "effect": "deny", "who": ["user:bert"], "tools": ["interlock:*"]},
        {"id": "yes", "effect": "allow", "who": ["user:bert"], "tools": ["s:*"]},
    ]
    views = {"v": {"servers": ["s"]}}
    async with running({"policy": {"rules": rules}, "views": views}, s=library()) as gateway:
        anna = await gateway.key("anna", "mcp:s:*", view="v")
        bert, carl = await gateway.key("bert"), await gateway.key("carl")
        id = (await gateway.call("s__x", anna)).json["result"]["_meta"]["interlock/result"]["id"]
        read = await gateway.call("interlock__read_result", anna, id=id, limit=1)
        assert read.text.startswith("line 0\n")
        for key in (bert, carl):  # denied by a rule, or nothing granted at all
            reply = await gateway.call("interlock__read_result", key, id=id)
            assert "unknown tool" in reply.json["error"]["message"]


@pytest.mark.slow("works through 5 MiB")
async def test_result_of_five_mebibytes_is_read_back_byte_for_byte_in_pieces(running):
    line = "".join(map(chr, (*range(32, 127), 0xE9, 0x20AC, 0x1F600, 0x2028))) + 900 * "x" + "\r\n"
    large = line * (5 * 1024 * 1024 // len(line.encode()))
    answers = {"tools/list": {"tools": [tool("x")]}, "tools/call": text(large)}
    settings = {"results": {"max": 1024 * 1024}}
    async with running(settings, s=ScriptedServer(LEGACY, answers)) as running_gateway:
        gateway = as_principal(running_gateway.assembly.server, ANNA)
        async with Client.memory(gateway) as anna:
            result = await anna.call_tool("s__x")
            pieces = []
            while True:
                piece, note = (each.text for each in result.content[:2])  # type: ignore[union-attr]
                pieces.append(piece)
                _, _, arguments = note.partition("interlock__read_result ")
                if not arguments:
                    break
                result = await anna.call_tool(
                    "interlock__read_result", msgspec.json.decode(arguments)
                )
            id = (await anna.call_tool("s__x")).meta["interlock/result"]["id"]
            whole = await anna.read_resource(f"interlock://results/{id}")

    assert "".join(pieces).encode() == large.encode()
    assert len(pieces) > 4
    assert whole.text == large
