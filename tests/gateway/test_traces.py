"""The trace context of a client behind a gateway, without and with telemetry."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.observing import TraceContext
from interlock.store.audit.reading import AuditReader
from interlock.telemetry import names
from interlock.telemetry.span import CLIENT, SERVER, TraceSpan
from tests.gateway.conftest import RunningGateway, bearer, offering
from tests.server.http.conftest import MODERN, rpc
from tests.support.recorded_spans import recorded_spans
from tests.support.scripted_server import ScriptedServer, text, tool
from tests.test_observing import MALFORMED

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
TRUSTED = {"telemetry": {"trust": ["group:agents"]}, "groups": {"agents": ["user:bot"]}}
META = {"traceparent": PARENT, "tracestate": "vendor=a", "baggage": "user=anna"}


def upstream(revision: str) -> ScriptedServer:
    answers: dict[str, Any] = {"tools/list": {"tools": [tool("x")]}, "tools/call": text("done")}
    if revision == MODERN:
        for each in answers.values():
            each["resultType"] = "complete"
    return ScriptedServer(revision, answers)


@pytest.mark.slow("fills a database")
async def test_a_trusted_trace_goes_to_servers_of_both_eras_and_no_other_does(running):
    old, new = offering("x"), upstream(MODERN)

    def forwarded(server: ScriptedServer) -> tuple[Any, ...]:
        meta = server.sent("tools/call")[-1].get("_meta", {})
        return tuple(meta.get(key) for key in META)

    async with running(TRUSTED, old=old, new=new) as gateway:
        local = gateway.assembly.services.callers.key_for_this_run()
        bot, anna = await gateway.key("bot"), await gateway.key("anna")
        legacy = await gateway.http.initialize(headers=bearer(bot))

        async def by(key: str, meta: Any, header: str = "") -> list[Any]:
            headers = bearer(key) | ({"traceparent": header} if header else {})
            for name in ("old__x", "new__x"):
                params = {"name": name, "arguments": {}}
                await gateway.http.ask("tools/call", params, meta=meta, headers=headers)
            return [forwarded(old), forwarded(new)]

        assert await by(bot, META) == [(PARENT, "vendor=a", None)] * 2
        assert await by(bot, {}, PARENT) == [(PARENT, None, None)] * 2
        assert await by(bot, META, OTHER) == [(PARENT, "vendor=a", None)] * 2
        assert await by(bot, {"traceparent": "00-1"}) == [(None, None, None)] * 2
        assert await by(anna, META, OTHER) == [(None, None, None)] * 2
        assert await by(local, META) == [(PARENT, "vendor=a", None)] * 2
        call = rpc("tools/call", {"name": "old__x", "arguments": {}}, id=1)
        await legacy.post(call, {"traceparent": OTHER}).finished()
        assert forwarded(old) == (OTHER, None, None)
        await legacy.call("old__x", traceparent=PARENT)
        assert forwarded(old) == (PARENT, None, None)


@pytest.mark.slow("fills a database")
async def test_the_audit_record_names_the_span_and_the_trace_that_is_only_linked(
    running, tmp_path: Path
):
    with recorded_spans() as spans:
        async with running(TRUSTED, s=offering("x")) as gateway:
            for user in ("bot", "anna"):
                await called(gateway, MODERN, await gateway.key(user), META, "")
            await gateway.settle()
    async with AuditReader.open(tmp_path / "gateway.db") as reader:
        records = [each async for piece in reader.export() for each in piece]

    served = [each for each in spans if (each.kind, each.name) == (SERVER, "tools/call s__x")]
    intents = [each for each in records if each["kind"] == "intent"]
    assert [each["call"] for each in intents] == [each.attributes[names.CALL] for each in served]
    assert [each["traceparent"] for each in intents] == [each.context.parent for each in served]
    assert [each.get("clientTraceparent") for each in intents] == [None, PARENT]


async def called(
    gateway: RunningGateway, revision: str, key: str, meta: dict[str, Any], header: str
) -> None:
    """Call a tool with a context in `_meta` and in the header."""
    headers = bearer(key) | ({"traceparent": header} if header else {})
    params = {"name": "s__x", "arguments": {}}
    if revision == MODERN:
        await gateway.http.ask("tools/call", params, meta=meta, headers=headers)
        return
    client = await gateway.http.initialize(revision, headers=bearer(key))
    call = rpc("tools/call", params | {"_meta": meta}, id=1)
    await client.post(call, {"traceparent": header} if header else {}).finished()


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("revision", ["2025-06-18", "2025-11-25", MODERN])
async def test_a_span_continues_the_trace_of_a_trusted_client_and_links_to_any_other(
    running, revision: str
):
    long = META | {"tracestate": "v=" + "x" * 600}
    ways: list[tuple[dict[str, Any], str, TraceContext | None]] = [
        (META, "", TraceContext(PARENT, "vendor=a")),
        (META, OTHER, TraceContext(PARENT, "vendor=a")),
        ({}, PARENT, TraceContext(PARENT)),
        (long, "", TraceContext(PARENT)),
        ({"traceparent": PARENT[:-2] + "03"}, "", TraceContext(PARENT[:-2] + "03")),
        *(({"traceparent": each}, "", None) for each in MALFORMED),
    ]
    upstream = offering("x")
    with recorded_spans() as spans:
        async with running(TRUSTED, s=upstream) as gateway:
            bot, anna = await gateway.key("bot"), await gateway.key("anna")
            for key in (bot, anna):
                for meta, header, expected in ways:
                    spans.clear()
                    await called(gateway, revision, key, meta, header)
                    check(spans, expected, upstream, is_trusted=key == bot)


def check(
    spans: list[TraceSpan], given: TraceContext | None, upstream: ScriptedServer, is_trusted: bool
) -> None:
    served = next(each for each in spans if (each.kind, each.name) == (SERVER, "tools/call s__x"))
    sent = next(each for each in spans if (each.kind, each.name) == (CLIENT, "tools/call x"))
    if is_trusted and given is not None:
        assert (served.trace, served.parent) == (given.parent[3:35], given.parent[36:52])
        assert (served.trace_state, served.links) == (given.state, ())
    else:
        assert served.parent == ""
        assert served.links == (() if given is None else (given,))
    meta = upstream.sent("tools/call")[-1]["_meta"]
    assert (sent.trace, sent.parent) == (served.trace, served.id)
    assert meta["traceparent"] == f"00-{sent.trace}-{sent.id}-01"
    assert meta.get("tracestate", "") == served.trace_state
    assert "baggage" not in meta
