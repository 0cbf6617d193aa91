"""Requests on behalf of other clients: what a server asks reaches the client that is calling."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from interlock import Client
from interlock.errors import RemoteError
from interlock.types import ClientCapabilities, ElicitParams, ElicitResult
from tests.support.scripted_server import LEGACY, MODERN, Json, ScriptedServer, text

FORM = {"message": "who?", "requestedSchema": {"type": "object", "properties": {}}}
CAN_ELICIT = ClientCapabilities(elicitation={})


class Caller:
    """A client that is calling: answers every question with its name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: list[str] = []
        self.notices: list[tuple[str, Json]] = []

    def notify(self, method: str, params: bytes) -> None:
        self.notices.append((method, msgspec.json.decode(params)))

    async def ask(self, method: str, params: bytes, *, timeout: float) -> Raw:
        self.asked.append(method)
        answer = {"action": "accept", "content": {"name": self.name}}
        return Raw(msgspec.json.encode(answer))

    def close_stream(self, retry_ms: int) -> None: ...


def params(name: str = "x") -> bytes:
    return msgspec.json.encode({"name": name, "arguments": {}})


async def forward(client: Client, caller: Caller | None, **options: Any) -> Json:
    options.setdefault("capabilities", CAN_ELICIT if caller else None)
    raw = await client.forward("tools/call", params(), name="x", back=caller, **options)
    found: Json = msgspec.json.decode(raw)
    return found


def asking_legacy() -> ScriptedServer:
    """A legacy server whose tool asks the user, and says what was answered."""
    server = ScriptedServer(LEGACY)

    async def call(_: Json) -> Json:
        answer = await server.ask("elicitation/create", FORM)
        return text(msgspec.json.encode(answer.get("result", answer.get("error"))).decode())

    server.answers["tools/call"] = call
    return server


def asking_modern() -> ScriptedServer:
    def call(given: Json) -> Json:
        if "inputResponses" in given:
            name = given["inputResponses"]["q"]["content"]["name"]
            return text(f"{name} {given['requestState']}")
        question = {"method": "elicitation/create", "params": FORM}
        return {
            "resultType": "input_required",
            "inputRequests": {"q": question},
            "requestState": "s",
        }

    return ScriptedServer(MODERN, {"tools/call": call})


async def test_question_of_a_legacy_server_reaches_the_caller():
    server, anna = asking_legacy(), Caller("anna")
    async with Client.memory(server, revision=LEGACY) as client:
        result = await forward(client, anna)

    assert '"name":"anna"' in result["content"][0]["text"]
    assert anna.asked == ["elicitation/create"]


async def test_question_on_a_connection_shared_by_two_calls_reaches_no_client():
    server = asking_legacy()
    anna, berta = Caller("anna"), Caller("berta")
    held = asyncio.Event()
    answers = server.answers["tools/call"]

    async def call(given: Json) -> Any:
        if given["name"] == "hold":
            await held.wait()
            return text("held")
        assert callable(answers)
        result = await answers(given)  # type: ignore[misc]  # it is async
        held.set()
        return result

    server.answers["tools/call"] = call
    async with Client.memory(server, revision=LEGACY) as client:
        holding = asyncio.create_task(
            client.forward(
                "tools/call", params("hold"), name="hold", back=berta, capabilities=CAN_ELICIT
            )
        )
        await server.heard("tools/call")
        result = await forward(client, anna)
        await holding

    assert "ask_ambiguous" in result["content"][0]["text"]
    assert anna.asked == berta.asked == []


async def test_question_is_refused_if_the_caller_does_not_declare_that_it_can_be_asked():
    server, anna = asking_legacy(), Caller("anna")

    async def own(_: ElicitParams) -> ElicitResult:
        raise AssertionError("the question is not for this client's own user")

    async with Client.memory(server, revision=LEGACY, elicitation=own) as client:
        result = await forward(client, anna, capabilities=ClientCapabilities())

    assert "does not declare elicitation" in result["content"][0]["text"]
    assert anna.asked == []


async def test_log_message_during_a_call_goes_to_the_caller():
    server, anna = ScriptedServer(LEGACY), Caller("anna")
    own: list[Any] = []

    def call(_: Json) -> Json:
        server.notify("notifications/message", level="info", data="working")
        return text("done")

    server.answers["tools/call"] = call
    async with Client.memory(server, revision=LEGACY, on_log=own.append) as client:
        await forward(client, anna)
        server.notify("notifications/message", level="info", data="idle")
        await client.ping()

    assert anna.notices == [("notifications/message", {"level": "info", "data": "working"})]
    assert [each.data for each in own] == ["idle"]


async def test_question_of_a_modern_server_is_answered_by_the_caller_and_the_call_repeated():
    anna = Caller("anna")
    async with Client.memory(asking_modern(), revision=MODERN) as client:
        result = await forward(client, anna)

    assert result["content"][0]["text"] == "anna s"


async def test_question_of_a_modern_server_is_returned_to_a_modern_caller():
    anna = Caller("anna")
    async with Client.memory(asking_modern(), revision=MODERN) as client:
        result = await forward(client, anna, returns_questions=True)

    assert result["resultType"] == "input_required"
    assert result["requestState"] == "s"
    assert anna.asked == []


async def test_capabilities_of_the_caller_are_stated_to_a_modern_server():
    server = ScriptedServer(MODERN, {"tools/call": text("done")})
    async with Client.memory(server, revision=MODERN) as client:
        await forward(client, Caller("anna"), meta=b'"traceparent":"t"')
        await forward(client, None)

    stated = [each["_meta"] for each in server.sent("tools/call")]
    key = "io.modelcontextprotocol/clientCapabilities"
    assert [each[key] for each in stated] == [{"elicitation": {}}, {}]
    assert stated[0]["traceparent"] == "t"


async def test_members_that_interlock_does_not_know_are_kept():
    server = ScriptedServer(LEGACY, {"tools/call": text("done", **{"x-cost": 3})})
    async with Client.memory(server, revision=LEGACY) as client:
        assert (await forward(client, None))["x-cost"] == 3


async def test_error_of_the_server_is_raised():
    def refuse(_: Json) -> Json:
        raise RemoteError(-32602, "unknown tool")

    server = ScriptedServer(LEGACY, {"tools/call": refuse})
    async with Client.memory(server, revision=LEGACY) as client:
        with pytest.raises(RemoteError, match="unknown tool"):
            await forward(client, None)


async def test_question_on_the_stream_of_an_ended_call_reaches_no_other_caller():
    server, berta = ScriptedServer(LEGACY), Caller("berta")
    held = asyncio.Event()

    async def call(given: Json) -> Json:
        if given["name"] == "hold":
            await held.wait()
        return text("done")

    server.answers["tools/call"] = call
    async with Client.memory(server, revision=LEGACY) as client:
        await forward(client, Caller("anna"))
        (ended,) = [each["id"] for each in server.received if each["method"] == "tools/call"]
        holding = asyncio.create_task(
            client.forward(
                "tools/call", params("hold"), name="hold", back=berta, capabilities=CAN_ELICIT
            )
        )
        await server.heard("tools/call", times=2)
        question = {"jsonrpc": "2.0", "id": 1, "method": "elicitation/create", "params": FORM}
        # As an HTTP transport passes on what a stream brings after its response.
        client._connection.frames_received([msgspec.json.encode(question)], request=ended)
        held.set()
        await holding

    assert berta.asked == []
