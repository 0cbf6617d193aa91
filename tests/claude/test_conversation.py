"""The conversation without IO: events, answers, and which result belongs to which prompt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interlock.agent import ToolFinished, ToolStarted
from interlock.claude.conversation import ConversationState, SystemInit
from interlock.claude.events import (
    MAX_EVENTS,
    ClaudeDone,
    ClaudeEvent,
    ClaudeNotice,
    EventQueue,
    Retrying,
)
from interlock.claude.protocol import ControlProtocol, Message
from interlock.models import ReasoningDelta, TextDelta
from tests.claude.test_protocol import lines, per_version
from tests.support.rows import each_row


def conversation() -> ConversationState:
    return ConversationState(lambda name: f"at:{name}", lambda _: None)


def feed(talk: ConversationState, now: float = 0.0, **line: Any) -> None:
    talk.receive(line["type"], json.dumps(line).encode(), now=now)


def drained(queue: EventQueue) -> list[ClaudeEvent]:
    found = []
    while (event := queue.pop()) is not None:
        found.append(event)
    return found


def delta(kind: str, text: str, parent: str | None = None) -> dict[str, Any]:
    event = {"type": "content_block_delta", "delta": {"type": f"{kind}_delta", kind: text}}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent}


def assistant(*content: Any, parent: str | None = None) -> dict[str, Any]:
    message = {"id": "m", "content": content}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent}


@per_version
def test_trace_gives_the_same_events_with_and_without_repeated_lines(trace: Path):
    def events(times: int) -> list[tuple[object, ...]]:
        inits: list[SystemInit] = []
        talk = ConversationState(lambda name: name, inits.append)
        turns = [talk.begin(uuid) for uuid in uuids(trace)[:1]]
        protocol = ControlProtocol()
        for line in lines(trace):
            event = protocol.receive(line)
            for _ in range(times if isinstance(event, Message) and _may_repeat(line) else 1):
                if isinstance(event, Message):
                    talk.receive(event.kind, event.line, now=0.0)
            if talk.turn is None and len(turns) == 1:
                turns.append(talk.begin("11111111-1111-4111-8111-111111111111"))
        assert inits[0].tools
        seen = [event for turn in turns for event in drained(turn.events)]
        return [(type(event), getattr(event, "address", "")) for event in seen]

    assert events(1) == events(2)
    assert (ToolFinished, "mcp__math__add") in events(1)


def _may_repeat(line: bytes) -> bool:
    return json.loads(line)["type"] in ("assistant", "user", "system")


def uuids(trace: Path) -> list[str]:
    """Return the UUIDs of prompts that the results of a trace name, or one for older versions."""
    results = [json.loads(line) for line in lines(trace)]
    named = [each.get("user_message_uuids") for each in results if each["type"] == "result"]
    return [each[0] for each in named if each] or ["11111111-1111-4111-8111-111111111111"]


def test_adjacent_pieces_of_text_and_reasoning_are_joined_while_unread():
    talk = conversation()
    turn = talk.begin("u")
    for piece in ("a", "b"):
        feed(talk, **delta("text", piece))
    feed(talk, **delta("thinking", "t"))
    feed(talk, **delta("text", "c", parent="agent"))

    assert drained(turn.events) == [
        TextDelta("ab"),
        ReasoningDelta("t"),
        TextDelta("c", "agent"),
    ]


def test_call_starts_once_and_finishes_with_its_result_and_duration():
    talk = conversation()
    turn = talk.begin("u")
    use = {"type": "tool_use", "id": "t1", "name": "add", "input": {"a": 1}}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"text": "5"}]}
    feed(talk, 1.0, **assistant(use, parent="agent"))
    feed(talk, 1.0, **assistant(use, parent="agent"))
    feed(talk, 3.5, type="user", message={"content": [result]})
    feed(talk, 3.5, type="user", message={"content": [result]})

    assert drained(turn.events) == [
        ToolStarted("t1", "at:add", {"a": 1}, "agent"),
        ToolFinished("t1", "at:add", {"a": 1}, "5", False, 2.5, "agent"),
    ]


def test_text_of_a_message_that_was_not_streamed_is_an_event():
    talk = conversation()
    turn = talk.begin("u")
    feed(talk, **assistant({"type": "text", "text": "whole"}))

    assert drained(turn.events) == [TextDelta("whole")]


@each_row(
    ("more", "is_ours"),
    [
        ({"user_message_uuids": ["u"]}, True),
        ({"user_message_uuids": ["other"]}, False),
        ({}, True),
        ({"origin": {"kind": "human"}}, True),
        ({"origin": {"kind": "task-notification"}}, False),
    ],
)
def test_result_belongs_to_the_prompt_it_names(more: dict[str, Any], is_ours: bool):
    talk = conversation()
    turn = talk.begin("u")
    feed(talk, type="result", subtype="success", result="text", **more)

    assert turn.is_over is is_ours
    [done] = drained(turn.events if is_ours else talk.background)
    assert isinstance(done, ClaudeDone)
    assert done.answer.text == "text"


@each_row(
    ("result", "stop", "reason"),
    [
        ({"subtype": "success", "result": "x", "stop_reason": "end_turn"}, "end_turn", ""),
        ({"subtype": "success", "is_error": True, "result": "API Error"}, "api_error", "API Error"),
        (
            {"subtype": "success", "is_error": True, "api_error_status": 529},
            "api_error",
            "status 529",
        ),
        ({"subtype": "error_max_turns"}, "max_turns", "the limit of turns is reached"),
        ({"subtype": "error_max_budget_usd"}, "max_cost", "the limit of cost is reached"),
        ({"subtype": "error_during_execution", "errors": ["a", "b"]}, "error", "a; b"),
        ({"subtype": "error_of_tomorrow"}, "error", "error"),
        (
            {"subtype": "success", "num_turns": "two"},
            "error",
            "Claude Code's result could not be read: Expected `int`, got `str` - at `$.num_turns`",
        ),
    ],
)
def test_stop_reason_and_reason_of_a_result(result: dict[str, Any], stop: str, reason: str):
    talk = conversation()
    turn = talk.begin("u")
    feed(talk, type="result", **result)

    assert turn.answer is not None
    assert (turn.answer.stop_reason, turn.answer.reason) == (stop, reason)
    assert turn.answer.is_error is bool(reason)


def test_interrupted_turn_is_not_an_error_whatever_the_program_reports():
    talk = conversation()
    turn = talk.begin("u")
    turn.is_interrupted = True
    feed(talk, type="result", subtype="error_during_execution", is_error=True)

    assert turn.answer is not None
    assert (turn.answer.stop_reason, turn.answer.is_error) == ("interrupted", False)


def test_cost_and_denials_are_reported_for_each_turn():
    talk = conversation()
    talk.begin("u")
    feed(talk, type="result", subtype="success", total_cost_usd=0.5)
    turn = talk.begin("v")
    turn.denials += ["s:add", "s:add"]
    refused = [{"tool_name": "Bash"}]
    feed(talk, type="result", subtype="success", total_cost_usd=0.75, permission_denials=refused)

    assert turn.answer is not None
    assert turn.answer.cost == 0.25
    assert turn.answer.denials == ("s:add", "at:Bash")


def test_retry_and_notice_are_events_and_unknown_lines_are_ignored():
    talk = conversation()
    turn = talk.begin("u")
    retry = {"subtype": "api_retry", "attempt": 2, "retry_delay_ms": 1500, "error": "overloaded"}
    feed(talk, type="system", **retry)
    feed(talk, type="system", subtype="informational", content="low on disk")
    feed(talk, type="system", subtype="from_tomorrow", content={"a": 1})
    feed(talk, type="stream_event", event="odd")
    feed(talk, type="assistant", message=7)
    feed(talk, type="news")

    assert drained(turn.events) == [
        Retrying(2, 1.5, "overloaded"),
        ClaudeNotice("informational", "low on disk"),
    ]


def test_queue_without_reader_keeps_calls_and_drops_notices():
    queue = EventQueue()
    for n in range(MAX_EVENTS + 10):
        queue.put(ToolStarted(str(n), "s:t", {}))
    queue.put(ClaudeNotice("n", "text"))
    kept = drained(queue)

    assert len(kept) == MAX_EVENTS + 10
    assert isinstance(kept[-1], ToolStarted)


def test_background_without_reader_keeps_the_newest_events():
    queue = EventQueue(keeps_calls=False)
    for n in range(MAX_EVENTS + 10):
        queue.put(ToolStarted(str(n), "s:t", {}))
    kept = drained(queue)

    assert len(kept) == MAX_EVENTS
    assert isinstance(kept[-1], ToolStarted)
    assert kept[-1].id == str(MAX_EVENTS + 9)
