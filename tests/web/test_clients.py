"""Clients of other people, unmodified: @ag-ui/client and the chat transport of the AI SDK."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import ModelUnavailable
from tests.support.node import node_folder
from tests.web.conftest import Event, Serve, Served, check_numbers, risky

ROOT = Path(__file__).parents[2]
PEERS = ROOT / "tests" / "interop" / "peers"
MODULES = ROOT / "build" / "interop" / "node_modules"

DECIDED = ["approval", "approval_done"]

pytestmark = pytest.mark.program("Node")


async def drive(client: str, chat: Served, scenario: str) -> Any:
    """Run a client; return what it saw."""
    assert MODULES.exists(), f"{MODULES} is missing: `make test-all` installs it"
    arguments = (str(PEERS / f"{client}.mjs"), str(MODULES), chat.url, "ann-token", scenario)
    process = await asyncio.create_subprocess_exec(
        str(node_folder() / "node"),
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


async def follow(chat: Served) -> list[Event]:
    """Return the events of the latest turn, as a client on a WebSocket sees them."""
    turn = [*chat.app.turns._turns.values()][-1]
    async with chat.socket() as client:
        await client.send(type="resume", conversation_id=turn.conversation, after=0)
        await client.until("complete", "error")
    return client.events[1:]


def check_turn(events: list[Event]) -> None:
    """Check that a WebSocket client saw text, a call that ran, one that failed, and the answer."""
    check_numbers(events)
    ends = {each["tool_result"] for each in events if each["type"] == "tool_complete"}
    texts = [each["content"] for each in events if each["type"] == "token"]
    assert ends == {"got 1", "it is broken"}
    assert "".join(texts) == "Let me see.It is so."
    assert events[-1]["content"] == "It is so."


# AG-UI


async def test_ag_ui_client_receives_text_parallel_calls_and_the_answer(serve: Serve) -> None:
    async with serve(("Let me see.", 1, "bad"), "It is so.") as chat:
        seen = await drive("agui", chat, "turn")
        check_turn(await follow(chat))

    assert seen["outcomes"] == [{"type": "success"}]
    assert seen["errors"] == []
    asked, answer, *results, last = seen["messages"]
    assert asked["content"] == "go"
    assert answer["content"] == "Let me see."
    assert [each["function"]["name"] for each in answer["toolCalls"]] == ["kb:get", "kb:get"]
    assert {each["content"] for each in results} == {"got 1", "error: it is broken"}
    assert (last["role"], last["content"]) == ("assistant", "It is so.")


async def test_an_ag_ui_client_makes_one_message_of_calls_without_text(serve: Serve) -> None:
    async with serve(("", 1, 2), "done") as chat:
        seen = await drive("agui", chat, "silent")

    replies = [each for each in seen["messages"] if each["role"] == "assistant"]
    assert len(replies[0]["toolCalls"]) == 2
    assert len(replies) == 2


async def test_ag_ui_client_can_approve_a_call(serve: Serve) -> None:
    async with serve(("", "all"), "done", approve=risky) as chat:
        seen = await drive("agui", chat, "approval")
        events = await follow(chat)
        assert [each["type"] for each in events if "approval" in each["type"]] == DECIDED

        assert chat.desk.made == ["all"]
    waiting, finished = seen["outcomes"]
    assert waiting["type"] == "interrupt"
    assert waiting["interrupts"][0]["reason"] == "tool_call"
    assert finished == {"type": "success"}
    assert seen["messages"][-1]["content"] == "done"


async def test_ag_ui_client_can_stop_a_turn(serve: Serve) -> None:
    async with serve(("", "wait"), "later") as chat:
        seen = await drive("agui", chat, "stop")
        assert (await follow(chat))[-1]["stop_reason"] == "stopped"

        await chat.desk.server.heard("notifications/cancelled")
    assert seen["outcomes"] == [{"type": "cancelled"}]


async def test_ag_ui_client_receives_an_error(serve_agent: Serve) -> None:
    async with serve_agent(ModelUnavailable("the key sk-123 is wrong")) as chat:
        seen = await drive("agui", chat, "error")
        assert (await follow(chat))[-1]["code"] == "model_failed"

    assert "model_failed" in seen["errors"]
    assert "sk-123" not in json.dumps(seen)


# The AI SDK


def tool_parts(seen: Any) -> dict[str, Any]:
    return {each["toolCallId"]: each for each in seen["parts"] if "toolCallId" in each}


def texts(seen: Any) -> list[str]:
    return [each["text"] for each in seen["parts"] if each["type"] == "text"]


async def test_ai_sdk_client_receives_text_parallel_calls_and_the_answer(serve: Serve) -> None:
    async with serve(("Let me see.", 1, "bad"), "It is so.") as chat:
        seen = await drive("aisdk", chat, "turn")
        check_turn(await follow(chat))

    assert texts(seen) == ["Let me see.", "It is so."]
    calls = tool_parts(seen)
    assert (calls["call_1"]["state"], calls["call_1"]["output"]) == ("output-available", "got 1")
    assert calls["call_1"]["input"] == {"x": 1}
    assert (calls["call_2"]["state"], calls["call_2"]["errorText"]) == (
        "output-error",
        "it is broken",
    )
    assert seen["types"][0] == "start"
    assert seen["types"][-1] == "finish"
    assert seen["errors"] == []


async def test_call_can_be_approved_through_the_ai_sdk(serve: Serve) -> None:
    async with serve(("", "all"), "done", approve=risky) as chat:
        seen = await drive("aisdk", chat, "approval")
        events = await follow(chat)
        assert [each["type"] for each in events if "approval" in each["type"]] == DECIDED

        assert chat.desk.made == ["all"]
    assert tool_parts(seen)["call_1"]["state"] == "output-available"
    assert texts(seen) == ["done"]


async def test_ai_sdk_client_can_stop_a_turn(serve: Serve) -> None:
    async with serve(("", "wait"), "later") as chat:
        seen = await drive("aisdk", chat, "stop")
        assert (await follow(chat))[-1]["stop_reason"] == "stopped"

        await chat.desk.server.heard("notifications/cancelled")
    assert seen["types"][-1] == "abort"


async def test_ai_sdk_client_receives_an_error(serve_agent: Serve) -> None:
    async with serve_agent(ModelUnavailable("the key sk-123 is wrong")) as chat:
        seen = await drive("aisdk", chat, "error")
        assert (await follow(chat))[-1]["code"] == "model_failed"

    text = "its provider cannot be used now; try again later, or tell the operator of this gateway"
    assert seen["errors"] == [f"model_failed: {text}"]
