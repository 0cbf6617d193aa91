"""Which revision a server speaks: every way in which it may answer, or not."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest

from interlock.client import Client, handshake
from interlock.errors import (
    InterlockError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    RevisionError,
    ServerExited,
)
from interlock.revisions import LEGACY, MODERN, NEWEST, NEWEST_LEGACY
from tests.support.clock import run_stepped
from tests.support.rows import each_row
from tests.support.scripted_server import ScriptedServer

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]
BIN = Path(sys.executable).parent
OLD = f"revision={NEWEST_LEGACY}"


async def agreed(client: Client) -> str:
    """Open a client, see that calls work, and give the revision."""
    async with client:
        assert (await client.call_tool("echo", {"text": "hello"})).text == "hello"
        assert client.server_info.name == "evil"
        return client.revision


async def test_modern_server_is_sent_one_discover(evil: Evil):
    assert await agreed(evil("initialize=exit")) == NEWEST


@each_row("revision", LEGACY)
async def test_legacy_server_keeps_its_revision(evil: Evil, revision: str):
    assert await agreed(evil(f"revision={revision}")) == revision


@each_row(
    "answer",
    [
        "[-32601]",
        "[-32602]",
        "[-32600]",
        "[-32603]",
        "[-32700]",
        "[-32000]",
        "[-32001]",
        "[0]",
        "[-32022]",
        '[-32022, "data"]',
        '[-32022, {"supported": []}]',
        '[-32022, {"supported": "2026-07-28"}]',
        f'[-32022, {{"supported": ["{NEWEST_LEGACY}", "2031-01-01"]}}]',
        "{}",
        '{"supportedVersions": "2026-07-28", "capabilities": {}}',
        '{"supportedVersions": []}',
        f'{{"supportedVersions": ["{NEWEST_LEGACY}"], "capabilities": {{}}}}',
    ],
)
async def test_answer_that_is_not_modern_means_legacy(evil: Evil, answer: str):
    assert await agreed(evil(OLD, f"server/discover={answer}")) == NEWEST_LEGACY


async def test_program_that_exits_on_discover_is_started_again(evil: Evil):
    losses: list[InterlockError] = []
    client = evil(OLD, "server/discover=exit", on_loss=losses.append)

    assert await agreed(client) == NEWEST_LEGACY
    assert losses == []  # that one was never there for the user


def test_server_without_an_answer_is_tried_as_legacy_after_half_the_timeout():
    async def use() -> None:
        server = ScriptedServer(answers={"server/discover": lambda _: None})
        began = asyncio.get_running_loop().time()
        async with Client(server.connect, connect_timeout=8.0) as client:
            assert client.revision == NEWEST_LEGACY
        assert asyncio.get_running_loop().time() - began == pytest.approx(4.0)

    run_stepped(use())


async def test_server_without_an_answer_is_tried_as_legacy_after_the_discover_timeout(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "DISCOVER_TIMEOUT", 0.2)
    started = monotonic()
    assert await agreed(evil(OLD, "server/discover=mute", connect_timeout=3600.0)) == NEWEST_LEGACY

    assert monotonic() - started >= 0.2


async def test_late_discover_response_of_a_legacy_server_has_no_effect(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "DISCOVER_TIMEOUT", 0.2)
    async with evil(OLD, "server/discover=late") as client:
        assert client.revision == NEWEST_LEGACY
        assert client.dropped == {}


async def test_server_of_both_eras_that_starts_slowly_stays_modern(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(handshake, "DISCOVER_TIMEOUT", 0.0)
    code = "import time; time.sleep(0.2); from interlock import Server; Server('both').run()"
    async with Client.stdio(sys.executable, "-c", code) as client:
        assert client.revision == NEWEST
        await client.ping()
        assert client.dropped == {}


async def test_modern_server_that_starts_slowly_is_recognized(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "DISCOVER_TIMEOUT", 0.3)
    assert await agreed(evil("server/discover=once:mute")) == NEWEST


async def test_slow_start_within_the_timeout_succeeds(evil: Evil):
    assert await agreed(evil("slow=0.3")) == NEWEST


async def test_server_that_must_be_modern_gets_the_whole_timeout(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "DISCOVER_TIMEOUT", 0.0)
    assert await agreed(evil(revision=NEWEST)) == NEWEST


async def test_slow_modern_server_without_initialize_is_recognized(
    evil: Evil, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(handshake, "DISCOVER_TIMEOUT", 0.3)
    assert await agreed(evil("server/discover=once:mute", "initialize=[-32601, {}]")) == NEWEST


@pytest.mark.parametrize("supported", [list(MODERN), ["2031-01-01", *LEGACY, *MODERN]])
async def test_refusal_that_names_a_common_revision_is_followed_once(
    evil: Evil, supported: list[str]
):
    names = ", ".join(f'"{each}"' for each in supported)
    refusal = f'[-32022, {{"supported": [{names}]}}]'

    assert await agreed(evil(f"server/discover=once:{refusal}")) == NEWEST
    with pytest.raises(RemoteError) as told:  # and not for ever
        await evil(f"server/discover={refusal}").open()
    assert told.value.code == -32022


@pytest.mark.parametrize(
    "answer",
    [
        '[-32022, {"supported": ["2031-01-01"]}]',
        '{"supportedVersions": ["2031-01-01"], "capabilities": {}}',
    ],
)
async def test_error_without_common_revision_names_both_sides(evil: Evil, answer: str):
    with pytest.raises(RevisionError, match=r"speaks 2031-01-01; interlock speaks 2024-11-05, "):
        await evil(f"server/discover={answer}").open()


@pytest.mark.parametrize("code", [-32020, -32021])
async def test_modern_error_does_not_fall_back_to_legacy(evil: Evil, code: int):
    with pytest.raises(RemoteError) as told:
        await evil(OLD, f"server/discover=[{code}]").open()

    assert told.value.code == code


@each_row("version", [NEWEST, "2031-01-01", "", "1"])
async def test_initialize_with_an_unknown_revision_is_an_error(evil: Evil, version: str):
    """R-23."""
    with pytest.raises(RevisionError, match="answered initialize with"):
        await evil(OLD, f'initialize={{"protocolVersion": "{version}"}}').open()


@each_row(
    ("answer", "error"),
    [
        ("{}", RemoteProtocolError),
        ('{"protocolVersion": 1}', RemoteProtocolError),
        ('{"protocolVersion": "2025-11-25", "capabilities": [1]}', RemoteProtocolError),
        ("[-32603]", RemoteError),
        ("exit", ServerExited),
    ],
)
async def test_malformed_initialize_result_is_an_error(
    evil: Evil, answer: str, error: type[Exception]
):
    with pytest.raises(error):
        await evil(OLD, f"initialize={answer}").open()


async def test_requested_revision_is_used_without_discovery(evil: Evil):
    for wanted in ("legacy", NEWEST_LEGACY):
        assert await agreed(evil(OLD, "server/discover=exit", revision=wanted)) == NEWEST_LEGACY
    with pytest.raises(RemoteError):
        await evil(OLD, revision=NEWEST).open()
    with pytest.raises(ServerExited, match="cannot take server/discover"):
        await evil(OLD, "server/discover=exit", revision=NEWEST).open()
    with pytest.raises(RequestTimeout, match="no answer"):
        await evil("server/discover=mute", revision=NEWEST, connect_timeout=0.3).open()


@each_row("info", ["", '{"name": 7}', "7"], ids=["none", "name", "number"])
async def test_malformed_server_info_is_ignored(evil: Evil, info: str):
    meta = f'{{"io.modelcontextprotocol/serverInfo": {info}}}' if info else "{}"
    told = f'{{"supportedVersions": ["{NEWEST}"], "capabilities": {{}}, "_meta": {meta}}}'
    async with evil(f"server/discover={told}") as client:
        assert (client.revision, client.server_info.name) == (NEWEST, "")


@each_row("revision", LEGACY)
async def test_an_answer_in_a_list_is_read_in_every_revision(evil: Evil, revision: str):
    answer = '{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"TEXT"}]}}'
    lines = [f"[{answer.replace('TEXT', 'batch')}]", answer.replace("TEXT", "alone")]
    async with evil(f"revision={revision}") as client:
        told = await client.call_tool("say", {"lines": lines})
    assert told.text == "batch"


async def test_stderr_of_both_starts_is_in_the_error(evil: Evil):
    with pytest.raises(ServerExited, match="cannot take initialize"):
        await evil(OLD, "server/discover=exit", "initialize=exit").open()


@pytest.mark.program("mcp-server-time")
@each_row("server", ["mcp-server-time", "mcp-server-git"])
async def test_real_server_negotiates_the_newest_revision_of_each_era(server: str):
    async with Client.stdio(str(BIN / server)) as client:
        assert client.revision == NEWEST
        modern = [tool.name for tool in await client.list_tools()]
    async with Client.stdio(str(BIN / server), revision="legacy") as client:
        assert client.revision == NEWEST_LEGACY
        assert [tool.name for tool in await client.list_tools()] == modern != []
