"""One connection without its network: what goes in as bytes and time, what comes out."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Raw

from interlock.errors import (
    ConnectionClosed,
    LocalProtocolError,
    OutOfMemory,
    ParseError,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    ServerExited,
)
from interlock.protocol import (
    Answer,
    Cancellation,
    Event,
    Failure,
    Notification,
    Overrun,
    Progress,
    Protocol,
    Request,
    RequestOptions,
    Stray,
    envelope,
)
from interlock.protocol.core import (
    GARBAGE_COST,
    GARBAGE_WINDOW,
    MAX_GARBAGE,
    MAX_PROGRESS,
    MAX_RUNNING,
)
from interlock.protocol.envelope import MAX_BATCH
from interlock.protocol.odd_lines import PATIENCE
from tests.support.rows import each_row

Json = dict[str, Any]


def give(protocol: Protocol, *messages: Json | bytes, now: float = 0.0) -> list[Event]:
    """Return the events of these messages."""
    events: list[Event] = []
    for message in messages:
        frame = message if isinstance(message, bytes) else encode(message)
        events += protocol.receive(frame, now=now)
    return events


def encode(message: Any) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()


def message(**members: Any) -> Json:
    return {"jsonrpc": "2.0", **members}


def sent(protocol: Protocol) -> list[Any]:
    """Return the frames to send, decoded."""
    return [json.loads(frame) for frame in protocol.frames_to_send()]


def progress(token: object, value: object, **fields: Any) -> Json:
    params = {"progressToken": token, "progress": value, **fields}
    return message(method="notifications/progress", params=params)


def ignore(_: Progress) -> None:
    pass


def cancelled(id: object, **fields: Any) -> Json:
    return message(method="notifications/cancelled", params={"requestId": id, **fields})


# Requests


def test_request_meta_is_added_to_the_members_of_the_connection():
    peer = Protocol(meta=b'"a":1')
    peer.request("x", now=0.0, options=RequestOptions(meta=b'"b":2'))
    assert sent(peer)[0]["params"]["_meta"] == {"a": 1, "b": 2}


def test_request_meta_replaces_the_members_of_the_connection_on_request():
    peer = Protocol(meta=b'"a":1')
    options = RequestOptions(meta=b'"b":2', replace_meta=True)
    peer.request("x", now=0.0, options=options)
    peer.request("x", now=0.0)
    assert [each["params"]["_meta"] for each in sent(peer)] == [{"b": 2}, {"a": 1}]


def test_request_frame_states_the_values_for_the_http_headers():
    peer = Protocol(meta=b'"a":1')
    options = RequestOptions(meta=b'"b":2', progress=ignore, name="add")
    id = peer.request("tools/call", b'{"name":"add"}', options, now=0.0)
    (frame,) = peer.frames_to_send()
    assert isinstance(frame, envelope.RequestFrame)
    assert (frame.id, frame.method, frame.name) == (id, "tools/call", "add")
    assert frame.meta == b'"a":1,"b":2'


def test_request_gets_its_answer():
    peer = Protocol()
    id = peer.request("tools/list", b'{"cursor":"a"}', now=0.0)

    assert sent(peer) == [message(id=id, method="tools/list", params={"cursor": "a"})]
    assert give(peer, message(id=id, result={"tools": []})) == [Answer(id, Raw(b'{"tools":[]}'))]
    assert peer.pending == 0


def test_ids_count_from_one_and_are_never_used_again():
    peer = Protocol()
    ids = [peer.request("ping", now=0.0) for _ in range(3)]
    peer.cancel(2)
    give(peer, message(id=1, result={}))

    assert ids == [1, 2, 3]
    assert peer.request("ping", now=0.0) == 4


def test_frames_to_send_empties_the_outbox():
    peer = Protocol()
    peer.request("ping", now=0.0)

    assert len(peer.frames_to_send()) == 1
    assert peer.frames_to_send() == []


def test_answers_may_come_in_any_order():
    peer = Protocol()
    first, second = peer.request("ping", now=0.0), peer.request("ping", now=0.0)

    events = give(peer, message(id=second, result={"n": 2}), message(id=first, result={"n": 1}))

    assert events == [Answer(second, Raw(b'{"n":2}')), Answer(first, Raw(b'{"n":1}'))]


def test_reserved_method_names_are_refused():
    peer = Protocol()
    with pytest.raises(LocalProtocolError, match=r"'rpc\.discover' is reserved"):
        peer.request("rpc.discover", now=0.0)
    assert (peer.pending, peer.frames_to_send()) == (0, [])


def test_meta_of_connection_request_and_progress_is_one_object():
    peer = Protocol(meta=b'"version":"v"')
    id = peer.request(
        "x", b'{"a":1}', now=0.0, options=RequestOptions(progress=ignore, meta=b'"traceparent":"t"')
    )

    (request,) = sent(peer)

    assert request["params"] == {
        "_meta": {"version": "v", "traceparent": "t", "progressToken": id},
        "a": 1,
    }


@each_row("meta", [b"", b'"version":"v"'])
def test_request_without_progress_has_no_token(meta: bytes):
    peer = Protocol(meta=meta)
    peer.request("x", now=0.0)

    assert b"progressToken" not in peer.frames_to_send()[0]


# Failures


def test_an_error_of_the_peer_fails_the_request():
    peer = Protocol()
    id = peer.request("x", now=0.0)

    (failure,) = give(peer, message(id=id, error={"code": -32602, "message": "no", "data": [1]}))

    assert isinstance(failure, Failure)
    assert failure.id == id
    assert isinstance(failure.error, RemoteError)
    assert (failure.error.code, failure.error.message, failure.error.data) == (-32602, "no", [1])


@each_row(
    "members",
    [
        {},
        {"result": {}, "error": {"code": 1, "message": "both"}},
        {"error": None},
        {"error": ["no"]},
        {"error": {}},
        {"error": {"code": "no"}},
        {"error": {"code": 1, "message": ["x"]}},
    ],
)
def test_a_malformed_response_fails_its_request_and_no_other(members: Json):
    peer = Protocol()
    first, second = peer.request("x", now=0.0), peer.request("x", now=0.0)

    (failure,) = give(peer, message(id=first, **members))

    assert isinstance(failure, Failure)
    assert failure.id == first
    assert isinstance(failure.error, RemoteProtocolError)
    assert peer.dropped["malformed response"] == 1
    assert give(peer, message(id=second, result={})) == [Answer(second, Raw(b"{}"))]


@each_row(
    ("error", "code", "text"),
    [
        ("no", -32603, "no"),
        ({"message": "no"}, -32603, "no"),
        ({"code": "1", "message": "no"}, 1, "no"),
        ({"code": "E_NO", "message": "no"}, -32603, "E_NO: no"),
        ({"code": -1.0, "message": "no"}, -1, "no"),
        ({"code": 1.5, "message": "no"}, -32603, "no"),
    ],
)
def test_the_message_of_an_error_without_a_valid_code_is_kept(error: Any, code: int, text: str):
    peer = Protocol()
    id = peer.request("x", now=0.0)

    (failure,) = give(peer, message(id=id, error=error))

    assert isinstance(failure, Failure)
    assert isinstance(failure.error, RemoteError)
    assert (failure.error.code, failure.error.message) == (code, text)


def test_a_response_may_have_both_members_if_one_of_them_is_null():
    peer = Protocol()
    good, bad, null = (peer.request("x", now=0.0) for _ in range(3))
    no = {"code": 1, "message": "no"}

    assert give(peer, message(id=good, result={}, error=None)) == [Answer(good, Raw(b"{}"))]
    (failure,) = give(peer, message(id=bad, result=None, error=no))
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, RemoteError)
    assert give(peer, message(id=null, result=None, error=None)) == [Answer(null, Raw(b"null"))]


def test_malformed_response_with_readable_id_fails_its_request():
    peer = Protocol()
    first, second = peer.request("x", now=0.0), peer.request("x", now=0.0)

    (failure,) = give(peer, b'{"jsonrpc":"2.0","id":1,"result":{"a":NaN}}')

    assert isinstance(failure, Failure)
    assert failure.id == first
    assert isinstance(failure.error, ParseError)
    assert peer.dropped == {"garbage": 1}
    assert give(peer, message(id=second, result={})) == [Answer(second, Raw(b"{}"))]


def test_malformed_request_of_the_peer_fails_no_other():
    peer = Protocol()
    id = peer.request("x", now=0.0)

    assert give(peer, b'{"jsonrpc":"2.0","id":1,"method":"ping","params":NaN}') == []
    assert give(peer, message(id=id, result={})) == [Answer(id, Raw(b"{}"))]


# Ids


@each_row("id", ["1", 1.0])
def test_an_id_that_is_repeated_as_text_or_with_a_point_is_recognised(id: object):
    peer = Protocol()
    first, second = peer.request("x", now=0.0), peer.request("x", now=0.0)

    assert give(peer, message(id=id, result={})) == [Answer(first, Raw(b"{}"))]
    frame = json.dumps(message(id=float(second), result={})).encode()
    (event,) = peer.receive(frame, now=0.0, request=second)
    assert event == Answer(second, Raw(b"{}"))


@each_row("id", ["01", "1.0", 1.5, True, None, 2, "", [1]])
def test_another_id_answers_no_request(id: object):
    peer = Protocol()
    peer.request("x", now=0.0)

    assert give(peer, message(id=id, result={})) == []
    assert peer.pending == 1
    assert sum(peer.dropped.values()) == 1
    assert give(peer, message(id=1, result={})) == [Answer(1, Raw(b"{}"))]


def test_only_the_first_of_two_answers_counts():
    peer = Protocol()
    id = peer.request("x", now=0.0)

    events = give(peer, message(id=id, result={"n": 1}), message(id=id, result={"n": 2}))

    assert events == [Answer(id, Raw(b'{"n":1}'))]
    assert peer.dropped == {"unexpected response": 1}


def test_malformed_messages_do_not_affect_others():
    peer = Protocol()
    first, second = peer.request("x", now=0.0), peer.request("x", now=0.0)
    garbage = [b"", b"hello", b"\xff\xfe", b"[]", b"null", b'{"jsonrpc":"1.0"}', b"[" * 100_000]

    events = give(peer, message(id=first, result={}), *garbage, message(id=second, result={}))

    assert events == [Answer(first, Raw(b"{}")), Answer(second, Raw(b"{}"))]
    assert peer.dropped == {"garbage": len(garbage)}
    assert [each["id"] for each in sent(peer)] == [first, second]  # and nothing else


def lines(text: object, indent: int = 1) -> list[bytes]:
    return json.dumps(text, indent=indent).encode().splitlines()


ANSWER = {
    "jsonrpc": "2.0",
    "id": 1,
    "result": {"a": ["{[", "\\"], "b": {"jsonrpc": "2.0", "id": 1}},
}


@each_row(
    "frames",
    [
        lines(ANSWER),
        lines(ANSWER, 0),
        lines([ANSWER]),
        [b"{", b"[INFO] a line of a log, beside a bracket", *lines(ANSWER)],
        [b'{"jsonrpc":"2.0",', b'"id":1,"result":{', b"}}"],
        [b"\xef\xbb\xbf[" + encode(ANSWER) + b"]"],
        [b" [" + encode(ANSWER) + b"] "],
    ],
)
def test_an_answer_in_a_list_or_over_several_lines_is_read(frames: list[bytes]):
    peer = Protocol()
    peer.request("x", now=0.0)

    events = give(peer, *frames)

    assert [(type(each), each.id) for each in events if isinstance(each, Answer)] == [(Answer, 1)]
    assert len(events) == 1


@each_row(
    "frames",
    [
        lines({**ANSWER, "jsonrpc": "1.0"}),  # another protocol
        [b'{"jsonrpc":"2.0","id":1,"result":{"a":1'],  # the rest is missing
        [b'{"jsonrpc":"2.0","id":1,"result":{', b"and so on"],
    ],
)
def test_other_text_over_several_lines_fails_its_request_at_once(frames: list[bytes]):
    peer = Protocol()
    peer.request("x", now=0.0)

    events = give(peer, *frames)

    assert [type(each) for each in events] == [Failure]
    assert peer.pending == 0


def test_a_line_has_at_most_as_many_messages_as_a_list():
    peer = Protocol()
    note = encode(message(method="x"))

    assert len(give(peer, note * MAX_BATCH)) == MAX_BATCH
    assert give(peer, note * (MAX_BATCH + 1)) == []
    assert peer.dropped == {"garbage": 1}


def test_lines_that_come_late_or_without_end_are_no_message():
    peer = Protocol()
    give(peer, b"{", now=0.0)
    give(peer, *lines(ANSWER)[1:], now=PATIENCE + 1)
    assert peer.dropped["garbage"] > 1

    flood = [b"[", *[b"1," * 500_000] * 20]
    assert any(isinstance(each, Overrun) for each in give(peer, *flood, now=0.0))


def test_a_server_refuses_a_list_but_reads_a_request_over_several_lines():
    peer = Protocol(answers_garbage=True)
    request = {"jsonrpc": "2.0", "id": 1, "method": "x"}

    assert give(peer, *lines(request)) == [Request(1, "x", Raw(b"{}"))]
    assert give(peer, encode([{**request, "id": 2}])) == []
    (refusal,) = sent(peer)
    assert refusal["error"]["code"] == -32600


def test_content_length_headers_end_the_connection_with_the_reason():
    (overrun,) = give(Protocol(), b"Content-Length: 17")
    assert isinstance(overrun, Overrun)
    assert "each message on one line" in str(overrun.error)

    assert give(Protocol(), b"Content-Length: unknown") == []


CHUNK = b"Loading model weights, please wait\n" * 1_000
MANY = [CHUNK] * (MAX_GARBAGE // (len(CHUNK) + GARBAGE_COST))


def test_a_long_banner_does_no_harm_but_endless_garbage_is_an_overrun():
    peer = Protocol()
    assert give(peer, *[b"Loading model weights"] * 5_000, now=0.0) == []

    overrun, *_ = give(peer, *MANY, now=GARBAGE_WINDOW - 1)

    assert isinstance(overrun, Overrun)
    assert "over 4 MiB of malformed messages within 60 s" in str(overrun.error)


def test_occasional_garbage_does_not_overrun():
    peer = Protocol()
    for minute in range(5):
        assert give(peer, *MANY, now=minute * GARBAGE_WINDOW) == []


def test_earlier_garbage_does_not_hide_a_later_overrun():
    peer = Protocol()
    give(peer, *MANY, now=0.0)
    assert give(peer, *MANY, now=2 * GARBAGE_WINDOW) == []

    (overrun,) = give(peer, CHUNK, now=2 * GARBAGE_WINDOW)

    assert isinstance(overrun, Overrun)


# Time


def test_an_unanswered_request_expires_at_its_deadline():
    peer = Protocol()
    id = peer.request("tools/list", now=10.0, options=RequestOptions(timeout=5.0))
    peer.frames_to_send()

    assert peer.expire(now=14.9) == []
    (failure,) = peer.expire(now=15.0)

    assert failure.id == id
    assert isinstance(failure.error, RequestTimeout)
    assert str(failure.error) == "no answer to tools/list within 5 s"
    assert sent(peer) == [cancelled(id, reason="timeout")]
    assert peer.pending == 0


def test_the_answer_to_an_expired_request_is_dropped():
    peer = Protocol()
    id = peer.request("x", now=0.0, options=RequestOptions(timeout=1.0))
    peer.expire(now=1.0)

    assert give(peer, message(id=id, result={})) == []
    assert peer.dropped == {"unexpected response": 1}
    assert peer.expire(now=99.0) == []


def test_deadline_is_the_earliest_deadline_of_all_requests():
    peer = Protocol()
    assert peer.deadline() is None
    peer.request("a", now=0.0)
    assert peer.deadline() is None  # waits for ever
    late = peer.request("b", now=0.0, options=RequestOptions(timeout=9.0))
    soon = peer.request("c", now=1.0, options=RequestOptions(timeout=20.0, hard_timeout=4.0))

    assert peer.deadline() == 5.0
    assert [each.id for each in peer.expire(now=5.0)] == [soon]
    assert peer.deadline() == 9.0
    give(peer, message(id=late, result={}))
    assert peer.deadline() is None


def test_all_late_requests_expire_at_once():
    peer = Protocol()
    ids = [
        peer.request("x", now=0.0, options=RequestOptions(timeout=seconds))
        for seconds in (1.0, 3.0, 2.0)
    ]

    assert {each.id for each in peer.expire(now=2.5)} == {ids[0], ids[2]}
    assert peer.pending == 1


def test_deadlines_of_a_paused_request_wait_until_it_is_resumed_as_often():
    peer = Protocol()
    id = peer.request("x", now=0.0, options=RequestOptions(timeout=5.0, hard_timeout=8.0))
    peer.pause(id, now=4.0)
    peer.pause(id, now=10.0)
    peer.resume(id, now=100.0)
    assert peer.deadline() is None
    assert peer.expire(now=100.0) == []
    peer.resume(id, now=104.0)

    assert peer.deadline() == 105.0
    assert len(peer.expire(now=105.0)) == 1
    peer.pause(id, now=106.0)  # it has ended
    peer.resume(id, now=106.0)


def test_progress_moves_the_idle_deadline_and_never_the_hard_one():
    peer = Protocol()
    id = peer.request(
        "x", now=0.0, options=RequestOptions(timeout=5.0, hard_timeout=12.0, progress=ignore)
    )

    assert give(peer, progress(id, 1), now=4.0) == [Progress(id, 1.0)]
    assert peer.deadline() == 9.0
    give(peer, progress(id, 2), now=8.0)
    assert peer.deadline() == 12.0
    give(peer, progress(id, 3), now=11.0)
    assert peer.expire(now=11.9) == []
    (failure,) = peer.expire(now=12.0)
    assert "the hard limit" in str(failure.error)


def test_progress_moves_forward_only():
    peer = Protocol()
    id = peer.request("x", now=0.0, options=RequestOptions(timeout=5.0, progress=ignore))
    give(peer, progress(id, 2), now=1.0)

    assert give(peer, progress(id, 2), progress(id, 1), progress(id, -1), now=4.0) == []
    assert peer.deadline() == 6.0
    assert peer.dropped == {"unexpected progress": 3}
    assert give(peer, progress(id, 2.5)) == [Progress(id, 2.5)]


def test_the_first_progress_may_be_zero_or_less():
    peer = Protocol()
    id = peer.request("x", now=0.0, options=RequestOptions(progress=ignore))

    assert give(peer, progress(id, -1), progress(id, 0)) == [Progress(id, -1.0), Progress(id, 0.0)]


def test_progress_carries_total_and_message():
    peer = Protocol()
    id = peer.request("x", now=0.0, options=RequestOptions(progress=ignore))

    assert give(peer, progress(id, 1, total=4, message="half")) == [Progress(id, 1, 4, "half")]


def test_progress_notifications_over_the_rate_are_dropped_each_second():
    peer = Protocol()
    id, other = (
        peer.request("x", now=0.0, options=RequestOptions(timeout=5.0, progress=ignore))
        for _ in range(2)
    )
    flood = [progress(id, number) for number in range(3_000)]

    assert len(give(peer, *flood[:1_500], now=1.0)) == MAX_PROGRESS
    assert peer.dropped == {"progress too often": 500}
    assert give(peer, *flood[1_500:1_510], now=1.9) == []
    assert peer.dropped == {"progress too often": 510}
    assert peer.deadline() == 5.0  # of the other one: this one moves, told or not
    assert give(peer, progress(other, 1), now=1.9) == [Progress(other, 1)]
    assert give(peer, *flood[1_510:1_512], now=2.0) == [Progress(id, 1510), Progress(id, 1511)]


def test_unrequested_progress_is_dropped():
    peer = Protocol()
    quiet = peer.request("x", now=0.0, options=RequestOptions(timeout=5.0))
    done = peer.request("x", now=0.0, options=RequestOptions(progress=ignore))
    give(peer, message(id=done, result={}))

    assert give(peer, *(progress(each, 1) for each in (quiet, done, str(quiet), 99)), now=3.0) == []
    assert peer.deadline() == 5.0
    assert peer.dropped == {"unexpected progress": 4}


@each_row(
    "params",
    [{}, [], None, {"progressToken": 1}, {"progressToken": None, "progress": 1}]
    + [{"progressToken": 1, "progress": value} for value in ("half", None, True, [1])],
)
def test_malformed_progress_is_dropped(params: object):
    peer = Protocol()
    peer.request("x", now=0.0, options=RequestOptions(timeout=5.0, progress=ignore))

    given = give(peer, message(method="notifications/progress", params=params), now=1.0)

    assert given == []
    assert peer.deadline() == 5.0
    assert peer.dropped == {"malformed notification": 1}


def test_progress_with_numbers_as_text_keeps_a_request_alive():
    peer = Protocol()
    id = peer.request("x", now=0.0, options=RequestOptions(timeout=5.0, progress=ignore))

    given = give(peer, progress(float(id), "1", total="2", message=3), now=4.0)

    assert given == [Progress(id, 1.0, 2.0, "3")]
    assert peer.deadline() == 9.0


def test_an_endless_progress_is_dropped_as_malformed():
    peer = Protocol()
    peer.request("x", now=0.0, options=RequestOptions(timeout=5.0, progress=ignore))

    assert give(peer, encode(progress(1, 7)).replace(b"7", b"1e999")) == []
    assert peer.dropped == {"malformed notification": 1}


# Cancelling our requests


def test_cancelled_request_ends_silently_and_notifies_the_peer():
    peer = Protocol()
    id = peer.request("tools/call", now=0.0, options=RequestOptions(timeout=5.0))
    peer.frames_to_send()

    assert peer.cancel(id, "enough")
    assert sent(peer) == [cancelled(id, reason="enough")]
    assert give(peer, message(id=id, result={})) == []
    assert peer.expire(now=99.0) == []
    assert (peer.pending, peer.deadline()) == (0, None)


def test_a_request_is_cancelled_once():
    peer = Protocol()
    id = peer.request("x", now=0.0)
    peer.cancel(id)
    peer.frames_to_send()

    assert not peer.cancel(id)
    assert not peer.cancel(99)
    assert peer.frames_to_send() == []


def test_cancellation_without_a_reason_has_no_reason_member():
    peer = Protocol()
    peer.cancel(peer.request("x", now=0.0))

    assert sent(peer)[1] == cancelled(1)


@each_row("method", ["initialize", "server/discover"])
def test_cancelled_or_expired_handshake_request_sends_no_cancellation(method: str):
    peer = Protocol()
    id = peer.request(method, now=0.0)
    peer.request(method, now=0.0, options=RequestOptions(timeout=1.0))
    peer.frames_to_send()

    assert peer.cancel(id)
    assert len(peer.expire(now=1.0)) == 1
    assert peer.frames_to_send() == []


# Requests of the peer


def test_a_request_of_the_peer_is_answered():
    peer = Protocol()

    assert give(peer, message(id="a", method="roots/list", params={"x": 1})) == [
        Request("a", "roots/list", Raw(b'{"x":1}'))
    ]
    assert peer.running == 1
    peer.reply("a", b'{"roots":[]}')
    assert sent(peer) == [message(id="a", result={"roots": []})]
    assert peer.running == 0


def test_missing_params_are_an_empty_object():
    assert give(Protocol(), message(id=1, method="x"), message(method="y")) == [
        Request(1, "x", Raw(b"{}")),
        Notification("y", Raw(b"{}")),
    ]


def test_a_request_of_the_peer_is_answered_with_an_error():
    peer = Protocol()
    give(peer, message(id=1, method="x"), message(id=2, method="x"))
    peer.reply_error(1, -32601, "unknown")
    peer.reply_error(2, -32602, "bad", {"uri": "x"})

    assert sent(peer) == [
        message(id=1, error={"code": -32601, "message": "unknown"}),
        message(id=2, error={"code": -32602, "message": "bad", "data": {"uri": "x"}}),
    ]


def test_a_request_of_the_peer_is_answered_at_most_once():
    peer = Protocol()
    give(peer, message(id=1, method="x"))
    peer.reply(1, b"{}")
    peer.reply(1, b"{}")
    peer.reply_error(1, -32603, "late")
    peer.reply("1", b"{}")

    assert len(peer.frames_to_send()) == 1
    assert peer.dropped == {"reply to unknown request": 3}


def test_ids_of_both_sides_are_separate():
    peer = Protocol()
    id = peer.request("x", now=0.0)
    give(peer, message(id=id, method="roots/list"))

    assert (peer.pending, peer.running) == (1, 1)
    assert give(peer, message(id=id, result={})) == [Answer(id, Raw(b"{}"))]
    peer.reply(id, b"{}")
    assert peer.running == 0


def test_an_id_in_use_is_refused_until_it_has_been_answered():
    peer = Protocol(answers_garbage=True)
    give(peer, message(id=7, method="x"))

    assert give(peer, message(id=7, method="y")) == []
    (refusal,) = sent(peer)
    assert "id" not in refusal  # or it would be taken for the answer to the first
    assert refusal["error"]["code"] == -32600
    assert len(give(peer, message(id="7", method="y"))) == 1
    peer.reply(7, b"{}")
    assert len(give(peer, message(id=7, method="z"))) == 1


@each_row(("answers", "frames"), [(True, 1), (False, 0)])
def test_a_request_with_id_null_is_not_run(answers: bool, frames: int):
    peer = Protocol(answers_garbage=answers)

    assert give(peer, message(id=None, method="x")) == []
    assert len(peer.frames_to_send()) == frames


def test_too_many_requests_at_once_are_refused_and_the_rest_continues():
    peer = Protocol()
    for id in range(MAX_RUNNING):
        assert len(give(peer, message(id=id, method="x"))) == 1

    assert give(peer, message(id="one more", method="x")) == []
    (refusal,) = sent(peer)
    assert (refusal["id"], refusal["error"]["code"]) == ("one more", -32603)
    assert peer.running == MAX_RUNNING
    peer.reply(0, b"{}")
    assert len(give(peer, message(id="one more", method="x"))) == 1


def test_request_without_a_frame_ends_like_other_requests():
    peer = Protocol(meta=b'"m":1')
    peer.hands_over_calls = True
    options = RequestOptions(meta=b'"k":2', progress=lambda _: None, timeout=5.0)
    id = peer.request("tools/call", b'{"a":1}', options, now=0.0)

    meta = b'{"_meta":{"m":1,"k":2,"progressToken":1},"a":1}'
    assert (peer.unframed, peer.frames_to_send()) == (Request(1, "tools/call", Raw(meta)), [])
    assert give(peer, message(id=id, result={})) == [Answer(1, Raw(b"{}"))]
    late = peer.request("tools/call", b"{}", options, now=0.0)
    assert [each.id for each in peer.expire(now=5.0)] == [late]


def test_a_request_that_came_without_a_frame_is_answered_until_the_connection_ends():
    peer = Protocol()
    assert peer.accept(Request(1, "tools/call", Raw(b"{}")))
    peer.reply(1, b"{}")
    assert sent(peer) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]

    peer.close()
    assert not peer.accept(Request(2, "tools/call", Raw(b"{}")))


def test_malformed_message_is_answered_by_servers_only():
    for frame, code in ((b"hello", -32700), (b'{"id":1}', -32600), (b"[]", -32600)):
        server, client = Protocol(answers_garbage=True), Protocol()
        give(server, frame)
        give(client, frame)

        (error,) = sent(server)
        assert "id" not in error
        assert error["error"]["code"] == code
        assert client.frames_to_send() == []


def test_a_request_may_be_ignored():
    peer = Protocol(batches=True)
    both = [message(id=2, method="x"), message(id=3, method="x")]
    give(peer, message(id=1, method="x"), encode(both))
    peer.ignore(1)
    peer.ignore(2)
    peer.reply(3, b"{}")

    assert sent(peer) == [[message(id=3, result={})]]
    assert peer.running == 0
    assert peer.dropped == {"unexpected request": 2}


# Cancelling requests of the peer


def test_cancelled_request_of_the_peer_is_not_answered():
    peer = Protocol()
    give(peer, message(id=1, method="x"))

    assert give(peer, cancelled(1, reason="enough")) == [Cancellation(1, "enough")]
    peer.reply(1, b"{}")
    assert peer.frames_to_send() == []
    assert peer.running == 0
    assert peer.dropped == {"reply to unknown request": 1}


@each_row(("id", "repeated"), [(5, "5"), (5, 5.0), ("5", 5)])
def test_an_id_is_recognised_in_a_notification_too(id: int | str, repeated: object):
    peer = Protocol()
    give(peer, message(id=id, method="x"))
    ours = peer.request("y", now=0.0, options=RequestOptions(progress=print))
    report = {"progressToken": type(repeated)(ours), "progress": 1}

    assert give(peer, cancelled(repeated)) == [Cancellation(id, "")]
    assert give(peer, message(method="notifications/progress", params=report)) == [
        Progress(ours, 1.0)
    ]


def test_cancellation_of_an_unknown_request_is_dropped():
    peer = Protocol()
    peer.request("x", now=0.0)  # has id 1 on our side
    give(peer, message(id="2", method="x"))

    assert (
        give(peer, cancelled(1), cancelled("02"), message(method="notifications/cancelled")) == []
    )
    assert peer.dropped == {"cancellation of unknown request": 3}
    assert (peer.pending, peer.running) == (1, 1)


@each_row("params", [[], None, {"requestId": 1.5}, {"requestId": 1, "reason": [1]}])
def test_a_malformed_cancellation_is_dropped(params: object):
    peer = Protocol()
    give(peer, message(id=1, method="x"))

    assert give(peer, message(method="notifications/cancelled", params=params)) == []
    assert peer.running == 1
    assert peer.dropped == {"malformed notification": 1}


# Notifications


def test_notifications_go_both_ways():
    peer = Protocol()
    peer.notify("notifications/initialized")
    peer.notify("notifications/message", b'{"level":"info"}')

    assert sent(peer) == [
        message(method="notifications/initialized"),
        message(method="notifications/message", params={"level": "info"}),
    ]
    assert give(peer, message(method="a/b", params={"c": 1})) == [
        Notification("a/b", Raw(b'{"c":1}'))
    ]


# Messages on the stream of one of our requests, as over HTTP


def test_response_on_the_stream_of_another_request_is_dropped():
    peer = Protocol(batches=True)
    mine, other = (peer.request("x", now=0.0) for _ in range(2))
    foreign = [message(id=other, result={}), message(id=other, error={"code": 1, "message": "no"})]

    for frame in (*map(encode, foreign), batch(*foreign)):
        assert peer.receive(frame, now=0.0, request=mine) == []

    assert peer.pending == 2
    assert peer.dropped == {"response to another request": 4}
    assert peer.receive(encode(foreign[0]), now=0.0, request=other) == [Answer(other, Raw(b"{}"))]


@each_row("id", [{}, {"id": None}], ids=["no id", "null"])
def test_error_without_id_fails_the_request_of_its_stream(id: Json):
    peer = Protocol(batches=True)
    mine, _other = (peer.request("x", now=0.0) for _ in range(2))
    answer = {"jsonrpc": "2.0", **id}
    error = {"code": -32700, "message": "what?"}

    assert peer.receive(encode({**answer, "result": {}}), now=0.0, request=mine) == []
    (stray,) = peer.receive(encode({**answer, "error": error}), now=0.0)  # on no request
    assert isinstance(stray, Stray)
    assert (str(stray.error), stray.open) == ("what? (-32700)", 2)
    (failure,) = peer.receive(encode({**answer, "error": error}), now=0.0, request=mine)

    assert isinstance(failure, Failure)
    assert (failure.id, str(failure.error)) == (mine, "what? (-32700)")
    assert peer.pending == 1


@each_row(
    ("method", "code", "left"),
    [
        # https://github.com/modelcontextprotocol/java-sdk/issues/506
        ("tools/call", -32603, 0),
        ("initialize", -32601, 0),
        ("tools/call", -32601, 1),  # may answer an unknown notification
    ],
)
def test_error_without_id_fails_the_only_open_request(method: str, code: int, left: int):
    peer = Protocol()
    id = peer.request(method, now=0.0)

    events = give(peer, message(id=None, error={"code": code, "message": "no"}), now=0.0)

    told = [(each.id, str(each.error)) for each in events if isinstance(each, Failure)]
    assert told == ([] if left else [(id, f"no ({code})")])
    assert (peer.pending, len(events)) == (left, 1 - left)
    assert give(peer, message(id=id, result={})) == ([Answer(id, Raw(b"{}"))] if left else [])


@each_row("late", [None, "answer", "error"])
def test_error_without_id_may_be_about_a_request_that_was_given_up(late: str | None):
    peer = Protocol()
    error = message(id=None, error={"code": -32603, "message": "no"})
    first = peer.request("tools/call", now=0.0, options=RequestOptions(timeout=1.0))
    assert len(peer.expire(now=2.0)) == 1
    if late == "answer":
        give(peer, message(id=first, result={}))
    elif late == "error":
        give(peer, error)
    peer.request("tools/call", now=2.0)

    (event,) = give(peer, error)

    assert isinstance(event, Failure if late else Stray)  # once the first one has its answer
    assert peer.pending == (0 if late else 1)


ONE, TWO = (b'{"jsonrpc":"2.0","id":%d,"result":{}}' % id for id in (1, 2))
PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'


@each_row(
    ("line", "open", "answered"),
    [
        (ONE + TWO, 2, [1, 2]),
        (ONE + b" \t" + TWO + b" ", 2, [1, 2]),
        (b"INFO: " + ONE, 1, [1]),
        (b'Loading "{}" ... ' + ONE, 1, [1]),
        # A log may repeat a message that a user of the server has made up.
        (b"INFO: " + ONE, 2, []),
        (b"INFO: " + TWO, 1, []),
        (b"INFO: " + ONE + TWO, 1, []),
        (b"INFO: " + PING, 1, []),
        (b"INFO: " + ONE + b" done", 1, []),
        (ONE + b"}" + TWO, 2, [1]),  # by its id, as any malformed message
    ],
)
def test_line_with_more_than_a_message_is_read_where_it_is_clear(
    line: bytes, open: int, answered: list[int]
):
    peer = Protocol()
    for _ in range(open):
        peer.request("x", now=0.0)

    events = peer.receive(line, now=0.0)

    assert [each.id for each in events if isinstance(each, Answer | Failure)] == answered
    assert not any(isinstance(each, Request) for each in events)
    assert Protocol(answers_garbage=True).receive(PING + PING, now=0.0) == []  # a server refuses


@each_row("frame", [b"hello", b"[1", b"[]", b'{"jsonrpc":"2.0","id":2,"result":NaN}'])
def test_malformed_message_fails_the_request_of_its_stream(frame: bytes):
    peer = Protocol(batches=True)
    mine, _other = (peer.request("x", now=0.0) for _ in range(2))

    (failure,) = peer.receive(frame, now=0.0, request=mine)

    assert isinstance(failure, Failure)
    assert (failure.id, type(failure.error)) == (mine, ParseError)
    assert peer.pending == 1


def test_malformed_batch_member_fails_the_request_of_its_stream_only_if_it_answers_it():
    peer = Protocol(batches=True)
    mine, other = (peer.request("x", now=0.0) for _ in range(2))
    broken = [b'{"jsonrpc":"2.0","id":%d,"result":{},"result":{}}' % id for id in (other, mine)]

    events = peer.receive(
        batch(b"1", broken[0], message(id=mine, result={})), now=0.0, request=mine
    )
    assert events == [Answer(mine, Raw(b"{}"))]

    mine = peer.request("x", now=0.0)
    broken[1] = b'{"jsonrpc":"2.0","id":%d,"result":{},"result":{}}' % mine
    (failure,) = peer.receive(batch(*broken), now=0.0, request=mine)
    assert isinstance(failure, Failure)
    assert failure.id == mine
    assert peer.pending == 1


# Batches


def batch(*messages: Json | bytes) -> bytes:
    frames = [each if isinstance(each, bytes) else encode(each) for each in messages]
    return b"[" + b",".join(frames) + b"]"


def test_requests_of_a_batch_are_answered_together():
    peer = Protocol(batches=True)
    events = give(peer, batch(message(id=1, method="x"), message(id="b", method="y")))
    assert [type(event) for event in events] == [Request, Request]

    peer.reply("b", b'{"n":2}')
    assert peer.frames_to_send() == []
    peer.reply_error(1, -32601, "no")

    (answers,) = sent(peer)
    assert answers == [
        message(id="b", result={"n": 2}),
        message(id=1, error={"code": -32601, "message": "no"}),
    ]


def test_a_batch_without_requests_is_not_answered():
    peer = Protocol(batches=True)
    id = peer.request("x", now=0.0)
    peer.frames_to_send()

    events = give(peer, batch(message(method="a"), message(id=id, result={}), message(method="b")))

    assert events == [
        Notification("a", Raw(b"{}")),
        Answer(id, Raw(b"{}")),
        Notification("b", Raw(b"{}")),
    ]
    assert peer.frames_to_send() == []


def test_a_request_cancelled_in_its_own_batch_is_left_out_of_the_answer():
    peer = Protocol(batches=True)
    give(peer, batch(message(id=1, method="x"), message(id=2, method="x"), cancelled(1)))
    peer.reply(1, b"{}")
    peer.reply(2, b"{}")

    assert sent(peer) == [[message(id=2, result={})]]


def test_batch_is_answered_when_its_last_request_is_cancelled():
    peer = Protocol(batches=True)
    give(peer, batch(message(id=1, method="x"), message(id=2, method="x")))
    peer.reply(1, b"{}")
    give(peer, cancelled(2))

    assert sent(peer) == [[message(id=1, result={})]]


def test_a_batch_of_cancelled_requests_is_not_answered():
    peer = Protocol(batches=True)
    give(peer, batch(message(id=1, method="x"), cancelled(1)))
    give(peer, batch(message(id=2, method="x")), cancelled(2))

    assert peer.frames_to_send() == []


def test_bad_messages_of_a_batch_are_answered_with_the_good_ones_by_servers():
    bad = [message(id=None, method="x"), message(id=1, method="again"), b"1", b'{"id":3}']
    for answers, expected in ((True, len(bad) + 1), (False, 1)):
        peer = Protocol(batches=True, answers_garbage=answers)
        give(peer, batch(message(id=1, method="x"), *bad))
        peer.reply(1, b"{}")

        (reply,) = sent(peer)
        assert len(reply) == expected
        assert [each for each in reply if "id" in each] == [message(id=1, result={})]
        assert peer.dropped == {"garbage": len(bad)}


def test_a_client_does_not_answer_a_batch_of_garbage():
    peer = Protocol(batches=True)

    assert give(peer, batch(b"1", b"2"), b"[]", b"[NaN]") == []
    assert peer.frames_to_send() == []
    assert peer.dropped == {"garbage": 4}


def test_refused_request_does_not_delay_its_batch():
    peer = Protocol(batches=True)
    for id in range(MAX_RUNNING - 1):
        give(peer, message(id=id, method="x"))
    give(peer, batch(message(id="a", method="x"), message(id="b", method="x")))
    assert peer.frames_to_send() == []

    peer.reply("a", b"{}")

    (reply,) = sent(peer)
    assert [(each["id"], "error" in each) for each in reply] == [("b", True), ("a", False)]


def test_initialize_in_a_batch_is_refused():
    peer = Protocol(batches=True)

    events = give(peer, batch(message(id=1, method="initialize"), message(id=2, method="x")))
    peer.reply(2, b"{}")

    assert events == [Request(2, "x", Raw(b"{}"))]
    ((refused, answered),) = sent(peer)
    assert (refused["id"], refused["error"]["code"]) == (1, -32600)
    assert answered == message(id=2, result={})


def test_batches_are_refused_in_revisions_without_batches():
    peer = Protocol(answers_garbage=True)
    id = peer.request("x", now=0.0)
    peer.frames_to_send()

    assert give(peer, batch(message(id=id, result={}))) == []
    assert sent(peer)[0]["error"]["code"] == -32600
    assert peer.pending == 1


# Closing


def test_close_fails_open_requests_and_clears_the_outbox():
    peer = Protocol()
    ids = [peer.request("x", now=0.0, options=RequestOptions(timeout=5.0)) for _ in range(3)]
    give(peer, message(id=9, method="y"))
    reason = ServerExited("the server ended", 3, "bad day")

    failures = peer.close(reason)

    assert [each.id for each in failures] == ids
    for failure in failures:
        assert isinstance(failure.error, ServerExited)
        assert failure.error is not reason  # each waiter raises its own
        assert (failure.error.code, failure.error.stderr) == (3, "bad day")
    assert (peer.pending, peer.running, peer.deadline()) == (0, 0, None)
    assert peer.frames_to_send() == []


def test_nothing_is_sent_or_received_after_close():
    peer = Protocol(batches=True, answers_garbage=True)
    id = peer.request("x", now=0.0, options=RequestOptions(timeout=1.0))
    give(peer, message(id=1, method="y"))
    peer.close()

    assert peer.close() == []
    assert give(peer, message(id=id, result={}), message(method="n"), b"garbage", b"[1]") == []
    peer.reply(1, b"{}")
    peer.notify("n")
    assert not peer.cancel(id)
    assert peer.expire(now=99.0) == []
    assert peer.frames_to_send() == []
    with pytest.raises(ConnectionClosed):
        peer.request("x", now=0.0)


def test_request_after_close_raises_its_reason():
    peer = Protocol()
    peer.close(ServerExited("the server ended with code 3", 3))

    told = []
    for _ in range(2):
        with pytest.raises(ServerExited, match="code 3") as caught:
            peer.request("x", now=0.0)
        told.append(caught.value)
    assert told[0] is not told[1]  # or the traceback of one would grow with each


# Two of them


def test_two_protocols_understand_each_other():
    client, server = Protocol(), Protocol(answers_garbage=True)
    id = client.request("tools/call", now=0.0, options=RequestOptions(progress=ignore))

    def carry(sender: Protocol, receiver: Protocol) -> list[Event]:
        return give(receiver, *sender.frames_to_send())

    (request,) = carry(client, server)
    assert isinstance(request, Request)
    server.notify("notifications/progress", envelope.encode({"progressToken": id, "progress": 1}))
    server.reply(request.id, b'{"content":[]}')
    assert carry(server, client) == [Progress(id, 1.0), Answer(id, Raw(b'{"content":[]}'))]

    late = client.request("tools/call", now=0.0, options=RequestOptions(1.0))
    carry(client, server)
    client.expire(now=1.0)
    assert carry(client, server) == [Cancellation(late, "timeout")]
    assert (client.pending, server.running) == (0, 0)


# Memory


class Unfit:
    """Bytes that do not fit into memory."""

    def __bytes__(self) -> bytes:
        raise MemoryError


def test_response_fails_only_its_request_if_memory_is_exhausted():
    protocol = Protocol()
    protocol.request("x", now=0.0)
    second = protocol.request("y", now=0.0)

    (failure,) = protocol.receive(
        envelope.Cut(b'{"jsonrpc":"2.0","id":%d,"result":{"content":[' % second), now=0.0
    )
    assert isinstance(failure, Failure)
    assert (failure.id, type(failure.error)) == (second, OutOfMemory)
    assert protocol.pending == 1
    assert protocol.receive(envelope.Cut(b'{"result":{"a":"'), now=0.0) == []
    assert protocol.dropped["no memory"] == 2


@pytest.mark.parametrize(
    "request_",
    [
        b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"b"}}',
        b'{"method":"x","params":{"a":"b"},"jsonrpc":"2.0","id":7}',
    ],
    ids=["id first", "id last"],
)
def test_request_is_answered_with_an_error_if_memory_is_exhausted(
    request_: bytes, monkeypatch: pytest.MonkeyPatch
):
    protocol = Protocol()

    def decode(_: bytes) -> None:
        raise MemoryError

    monkeypatch.setattr(envelope, "_decode_envelope", decode)
    assert protocol.receive(request_, now=0.0) == []
    (answer,) = protocol.frames_to_send()
    assert json.loads(answer) == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": -32603, "message": "a message does not fit into memory"},
    }


def test_request_that_cannot_be_encoded_for_lack_of_memory_leaves_nothing():
    protocol = Protocol()
    with pytest.raises(MemoryError):
        protocol.request("x", Params(b'{"a":1}'), now=0.0, options=RequestOptions(meta=b'"b":2'))

    assert (protocol.pending, protocol.frames_to_send()) == (0, [])


class Params(bytes):
    """Params that cannot be copied."""

    def __bytes__(self) -> bytes:
        raise MemoryError

    def __getitem__(self, place: Any) -> Any:
        raise MemoryError


def test_messages_on_the_stream_of_a_request_name_it():
    peer = Protocol()
    id = peer.request("tools/call", now=0.0)
    question, news = message(id=7, method="roots/list"), message(method="notifications/x")
    events = [
        *peer.receive(encode(question), now=0.0, request=id),
        *peer.receive(encode(news), now=0.0, request=id),
        *peer.receive(encode(news), now=0.0),
    ]
    assert events == [
        Request(7, "roots/list", Raw(b"{}"), during=id),
        Notification("notifications/x", Raw(b"{}"), during=id),
        Notification("notifications/x", Raw(b"{}"), during=None),
    ]


def test_result_can_be_replaced_by_an_error_if_memory_is_exhausted():
    protocol = Protocol()
    protocol.receive(b'{"jsonrpc":"2.0","id":1,"method":"x"}', now=0.0)

    with pytest.raises(MemoryError):
        protocol.reply(1, Unfit())  # type: ignore[arg-type]  # as bytes
    protocol.reply_error(1, -32603, "no")
    assert len(protocol.frames_to_send()) == 1
    assert protocol.running == 0
