"""A link over a transport of the test: every question is answered once, every request ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from interlock.claude.facade import RpcError
from interlock.claude.link import Link
from interlock.claude.questions import UnsupportedQuestion
from interlock.errors import ConnectionClosed, InterlockError, MessageTooLarge, RequestTimeout
from interlock.transports import Receiver
from tests.claude.test_protocol import call, lines, per_version, question, response


class Pipe:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.writes = 0
        self.receiver: Receiver

    async def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def send(self, frames: list[bytes]) -> None:
        self.writes += 1
        self.sent += map(json.loads, frames)

    def forget(self, id: object) -> None: ...

    def diagnostics(self) -> str:
        return ""

    def abort(self, error: InterlockError) -> None:
        self.receiver.connection_lost(error)

    async def close(self) -> None: ...


class Host:
    """Answers as it is told."""

    def __init__(self) -> None:
        self.mcp: Any = b"{}"
        self.question: Any = b"{}"
        self.known = b""
        self.messages: list[str] = []
        self.ended: InterlockError | None = None
        self.cancelled = 0

    running_context = None

    async def answer_mcp(self, server: str, method: str, params: Raw) -> bytes:
        return await self._answer(self.mcp)

    def answer_question(self, subtype: str, line: bytes) -> bytes | Coroutine[Any, Any, bytes]:
        return self.known or self._answer(self.question)

    async def _answer(self, answer: Any) -> bytes:
        if answer == "hang":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, bytes)
        return answer

    def message_received(self, kind: str, line: bytes) -> None:
        self.messages.append(kind)

    def program_ended(self, error: InterlockError) -> None:
        self.ended = error


@pytest.fixture
async def opened() -> tuple[Link, Pipe, Host]:
    pipe, host = Pipe(), Host()
    link = Link(pipe, host)
    await link.open()
    return link, pipe, host


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


TOOLS_CALL = call(jsonrpc="2.0", id=0, method="tools/call")


@per_version
async def test_every_question_of_a_trace_gets_one_answer(trace: Path, opened):
    link, pipe, host = opened
    asked = [json.loads(line) for line in lines(trace)]
    wanted = [each["request_id"] for each in asked if each["type"] == "control_request"]
    pipe.receiver.frames_received(lines(trace) * 2)
    await settled()

    answered = [each["response"]["request_id"] for each in pipe.sent]
    assert sorted(answered) == sorted(wanted)
    assert host.messages.count("result") == 4
    await link.close()


@pytest.mark.parametrize(
    ("answer", "member", "said"),
    [
        (b'{"tools":[]}', "result", {"tools": []}),
        (RpcError(-32602, "bad params"), "error", {"code": -32602, "message": "bad params"}),
        (ValueError("s3cr3t"), "error", {"code": -32603, "message": "internal error"}),
    ],
)
async def test_mcp_request_is_answered_with_its_id_whatever_happens(
    answer: Any, member: str, said: object, opened
):
    link, pipe, host = opened
    host.mcp = answer
    pipe.receiver.frames_received([TOOLS_CALL])
    await settled()

    rpc = pipe.sent[0]["response"]["response"]["mcp_response"]
    assert rpc == {"jsonrpc": "2.0", "id": 0, member: said}
    await link.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (UnsupportedQuestion("x"), "unsupported: can_use_tool"),
        (ValueError("s3cr3t"), "internal error"),
    ],
)
async def test_question_that_fails_is_refused(answer: Exception, said: str, opened):
    link, pipe, host = opened
    host.question = answer
    pipe.receiver.frames_received([question()])
    await settled()

    assert pipe.sent[0]["response"] == {"subtype": "error", "request_id": "q1", "error": said}
    await link.close()


async def test_known_answer_is_sent_before_the_reader_returns(opened):
    link, pipe, host = opened
    host.known = b'{"behavior":"allow"}'
    pipe.receiver.frames_received([question()])

    assert pipe.sent[0]["response"]["response"] == {"behavior": "allow"}
    await link.close()


async def test_answers_to_lines_that_came_together_are_sent_together(opened):
    link, pipe, host = opened
    host.mcp = b'{"tools":[]}'
    asked = [TOOLS_CALL.replace(b'"q1"', b'"q%d"' % number) for number in range(64)]
    pipe.receiver.frames_received([*asked, question("known")])
    await settled()

    assert len(pipe.sent) == 65
    assert pipe.writes == 1
    await link.close()


@pytest.mark.parametrize("starts", [True, False])
async def test_cancelled_call_gets_an_error(starts: bool, opened):
    link, pipe, host = opened
    host.mcp = "hang"
    cancel = call(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 0})
    cancel = cancel.replace(b'"q1"', b'"q2"')
    pipe.receiver.frames_received([TOOLS_CALL])
    if starts:
        await settled()
    pipe.receiver.frames_received([cancel])
    await settled()

    said = [each["response"] for each in pipe.sent if each["response"]["request_id"] == "q1"]
    assert len(said) == 1
    assert "cancelled" in str(said)
    assert host.cancelled == 1
    await link.close()


async def test_cancellation_ends_the_newest_of_the_calls_with_the_same_id(opened):
    link, pipe, host = opened
    host.mcp = "hang"
    cancel = call(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 0})
    sent = (TOOLS_CALL, TOOLS_CALL, TOOLS_CALL, cancel, cancel)
    ended = []
    for number, line in enumerate(sent, 1):
        pipe.receiver.frames_received([line.replace(b'"q1"', b'"q%d"' % number)])
        await settled()
        answers = [each["response"] for each in pipe.sent]
        ended.append([each["request_id"] for each in answers if "cancelled" in str(each)])

    assert ended == [[], [], [], ["q3"], ["q3", "q2"]]
    assert host.cancelled == 2
    await link.close()


async def test_withdrawn_question_is_cancelled_without_an_answer(opened):
    link, pipe, host = opened
    host.question = "hang"
    pipe.receiver.frames_received([question()])
    await settled()
    pipe.receiver.frames_received([b'{"type":"control_cancel_request","request_id":"q1"}'])
    await settled()

    assert pipe.sent == []
    assert host.cancelled == 1
    await link.close()


async def test_reader_delivers_while_a_handler_hangs(opened):
    link, pipe, host = opened
    host.mcp = "hang"
    pipe.receiver.frames_received([TOOLS_CALL])
    await settled()
    asking = asyncio.create_task(link.control("interrupt"))
    await settled()
    pipe.receiver.frames_received([response(pipe.sent[0]["request_id"], response={"a": 1})])

    assert bytes(await asking) == b'{"a": 1}'
    await link.close()


async def test_control_request_without_answer_times_out(opened):
    link, _, _ = opened

    with pytest.raises(RequestTimeout, match="control request 'get_usage'"):
        await link.control("get_usage", 0.01)
    await link.close()


async def test_exit_of_claude_code_fails_requests_and_cancels_handlers(opened):
    link, pipe, host = opened
    host.mcp = "hang"
    pipe.receiver.frames_received([TOOLS_CALL])
    asking = asyncio.create_task(link.control("interrupt"))
    await settled()
    link.abort(ConnectionClosed("it exited"))
    with pytest.raises(ConnectionClosed, match="it exited"):
        await asking
    await settled()

    assert host.cancelled == 1
    assert host.ended is link.error
    with pytest.raises(ConnectionClosed, match="it exited"):
        await link.control("interrupt")
    await link.close()


async def test_long_line_names_the_option_to_raise(opened):
    link, _, host = opened
    link.abort(MessageTooLarge("message of over 65.0 MiB (limit 64 MiB)"))

    assert str(host.ended).endswith("raise max_line_bytes")
    await link.close()
