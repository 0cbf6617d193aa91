"""The trace context of a client, while telemetry is off."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.conftest import bearer, offering
from tests.server.http.conftest import MODERN, rpc
from tests.support.scripted_server import ScriptedServer, text, tool

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
OTHER = "00-11111111111111111111111111111111-2222222222222222-00"
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
    settings = {"telemetry": {"trust": ["group:agents"]}, "groups": {"agents": ["user:bot"]}}

    def forwarded(server: ScriptedServer) -> tuple[Any, ...]:
        meta = server.sent("tools/call")[-1].get("_meta", {})
        return tuple(meta.get(key) for key in META)

    async with running(settings, old=old, new=new) as gateway:
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
