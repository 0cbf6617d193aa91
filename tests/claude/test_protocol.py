"""The line protocol without IO: recorded traces split, repeated and cut; answers, deadlines."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from msgspec import Raw

from interlock.claude.protocol import (
    MAX_REMEMBERED,
    ControlProtocol,
    ControlRequest,
    ControlResponse,
    Failed,
    McpMessage,
    Message,
    Withdrawn,
)
from interlock.errors import ConnectionClosed, RemoteError, RequestTimeout
from interlock.transports.lines import LineSplitter
from tests.support.rows import each_row

TRACES = sorted((Path(__file__).parent / "traces").glob("*.jsonl"))
per_version = pytest.mark.parametrize("trace", TRACES, ids=lambda path: path.stem)


def lines(trace: Path) -> list[bytes]:
    return trace.read_bytes().splitlines()


def question(id: str = "q1", subtype: str = "can_use_tool") -> bytes:
    request = {"subtype": subtype, "tool_name": "Bash", "input": {}}
    line = {"type": "control_request", "request_id": id, "request": request}
    return json.dumps(line).encode()


def call(**message: object) -> bytes:
    request = {"subtype": "mcp_message", "server_name": "s", "message": message}
    line = {"type": "control_request", "request_id": "q1", "request": request}
    return json.dumps(line).encode()


def response(id: str, **fields: object) -> bytes:
    fields = {"subtype": "success", "request_id": id, **fields}
    return json.dumps({"type": "control_response", "response": fields}).encode()


# Recorded traces


@pytest.mark.slow("works through much data")
@per_version
def test_every_line_of_a_trace_survives_a_split_at_every_byte(trace: Path):
    for line in lines(trace):
        for at in range(len(line) + 1):
            splitter = LineSplitter(2**20)
            assert [*splitter.feed(line[:at]), *splitter.feed(line[at:] + b"\n")] == [line]


@per_version
def test_repeated_lines_of_a_trace_repeat_no_question(trace: Path):
    protocol = ControlProtocol()
    asked = []
    for line in lines(trace):
        for event in (protocol.receive(line), protocol.receive(line)):
            if isinstance(event, McpMessage | ControlRequest):
                asked.append(event.id)
                protocol.answer(event.id, b"{}")

    assert len(asked) == len(set(asked)) > 5
    assert len(protocol.lines_to_send()) == len(asked)
    assert protocol.dropped["repeated request"] == len(asked)


@per_version
def test_cut_lines_of_a_trace_are_dropped_and_counted(trace: Path):
    protocol = ControlProtocol()
    cut = 0
    for line in lines(trace):
        for at in range(1, len(line), 97):
            cut += 1
            assert protocol.receive(line[:at]) is None

    assert protocol.dropped["not JSON"] == cut


@per_version
def test_unknown_members_in_a_trace_change_nothing(trace: Path):
    def events(text: list[bytes]) -> list[type | None]:
        protocol = ControlProtocol()
        return [type(protocol.receive(line)) for line in text]

    more = [b'{"x-new":{"deep":[1]},' + line[1:] for line in lines(trace)]
    assert events(more) == events(lines(trace))


# Their requests


def test_mcp_request_keeps_the_id_0_and_its_params_encoded():
    event = ControlProtocol().receive(
        call(jsonrpc="2.0", id=0, method="initialize", params={"a": 1})
    )

    assert isinstance(event, McpMessage)
    assert (event.id, event.server, event.method, event.rpc_id) == ("q1", "s", "initialize", 0)
    assert json.loads(bytes(event.params)) == {"a": 1}


@each_row(
    ("sent", "read"),
    [
        (r"a\ud83d", "a\ufffd"),
        (r"\udc00b", "\ufffdb"),
        (r"\ud83d\ud83d\ude00", "\ufffd\N{GRINNING FACE}"),
        (r"\\ud83d \"\ud83d", '\\ud83d "\ufffd'),
    ],
)
def test_lone_surrogates_are_replaced_before_decoding(sent: str, read: str):
    request = b'{"subtype":"can_use_tool","tool_name":"Bash","input":{"command":"%b"}}'
    line = b'{"type":"control_request","request_id":"q1","request":%b}' % request % sent.encode()
    event = ControlProtocol().receive(line)

    assert isinstance(event, ControlRequest)
    assert msgspec.json.decode(event.line)["request"]["input"] == {"command": read}


def test_ids_of_old_requests_are_forgotten_unless_they_still_need_an_answer():
    protocol = ControlProtocol()
    for number in range(2 * MAX_REMEMBERED):
        protocol.receive(question(f"q{number}"))
        if number:
            protocol.answer(f"q{number}", b"{}")
    newest = question(f"q{2 * MAX_REMEMBERED - 1}")
    again = [protocol.receive(line) for line in (question("q0"), question("q1"), newest)]

    assert [each is None for each in again] == [True, False, True]
    protocol.answer("q0", b"{}")
    assert b'"q0"' in protocol.lines_to_send()[-1]


def test_request_is_answered_once_and_not_after_it_was_withdrawn():
    protocol = ControlProtocol()
    protocol.receive(question("q1"))
    protocol.answer("q1", b"{}")
    protocol.answer("q1", b"{}")
    protocol.receive(question("q2"))
    withdrawn = protocol.receive(b'{"type":"control_cancel_request","request_id":"q2"}')
    protocol.answer("q2", b"{}")

    assert withdrawn == Withdrawn("q2")
    assert len(protocol.lines_to_send()) == 1


@each_row(
    "line",
    [
        b'{"type":"control_request","request_id":"q1"}',
        b'{"type":"control_request","request_id":"q1","request":7}',
        b'{"type":"control_request","request_id":"q1","request":{"subtype":"mcp_message"}}',
        call(jsonrpc="2.0", id=[1], method="tools/list"),
    ],
)
def test_malformed_request_is_refused_at_once(line: bytes):
    protocol = ControlProtocol()

    assert protocol.receive(line) is None
    [sent] = map(json.loads, protocol.lines_to_send())
    assert sent["response"]["request_id"] == "q1"
    assert sent["response"]["subtype"] == "error"


@each_row("message", ["When?", 7, None, ["x"]])
def test_request_of_another_kind_may_have_any_members(message: object):
    request = {"subtype": "elicitation", "message": message, "server_name": message}
    line = {"type": "control_request", "request_id": "q1", "request": request}
    event = ControlProtocol().receive(json.dumps(line).encode())

    assert isinstance(event, ControlRequest)
    assert (event.id, event.subtype) == ("q1", "elicitation")


@each_row("line", [b"", b"Debug: x", b"[1]", b'"x"', b"{", b'{"type":7}', b"\xff", b"[" * 100_000])
def test_line_that_is_not_an_object_is_dropped(line: bytes):
    protocol = ControlProtocol()

    assert protocol.receive(line) is None
    assert protocol.dropped.total() == 1


def test_unknown_kind_of_line_is_delivered_as_a_message():
    line = b'{"type":"news","request":"odd"}'

    assert ControlProtocol().receive(line) == Message("news", line)


# Our requests


def test_request_ends_with_its_response_and_late_ones_are_dropped():
    protocol = ControlProtocol()
    id = protocol.request("interrupt", {}, now=0.0)
    [sent] = map(json.loads, protocol.lines_to_send())

    assert sent == {
        "type": "control_request",
        "request_id": id,
        "request": {"subtype": "interrupt"},
    }
    assert protocol.receive(response(id, response={"a": 1})) == ControlResponse(
        id, Raw(b'{"a": 1}')
    )
    assert protocol.receive(response(id)) is None
    assert protocol.dropped["late response"] == 1


def test_request_that_the_program_refuses_fails_with_its_words():
    protocol = ControlProtocol()
    id = protocol.request("set_model", {"model": "x"}, now=0.0)
    event = protocol.receive(response(id, subtype="error", error="Unsupported"))

    assert isinstance(event, Failed)
    assert isinstance(event.error, RemoteError)
    assert "refused 'set_model': Unsupported" in str(event.error)


def test_unanswered_request_expires_at_its_deadline():
    protocol = ControlProtocol()
    id = protocol.request("get_usage", {}, now=1.0, timeout=5.0)

    assert protocol.next_deadline == 6.0
    assert protocol.expire(now=5.9) == []
    [failed] = protocol.expire(now=6.0)
    assert (failed.id, type(failed.error)) == (id, RequestTimeout)
    assert protocol.next_deadline is None


def test_close_fails_every_waiting_request():
    protocol = ControlProtocol()
    ids = [protocol.request("interrupt", {}, now=0.0) for _ in range(3)]

    assert [each.id for each in protocol.close(ConnectionClosed("ended"))] == ids


@each_row("value", ["\ud83d", float("nan"), "line\nbreak", "\u2028"])
def test_sent_lines_are_valid_json_without_newlines(value: object):
    protocol = ControlProtocol()
    protocol.prompt([{"type": "text", "text": value}], "u")
    protocol.request("initialize", {"x": value}, now=0.0)
    protocol.receive(question())
    protocol.refuse("q1", str(value))

    for line in protocol.lines_to_send():
        assert b"\n" not in line
        json.loads(line.decode(), parse_constant=pytest.fail)
