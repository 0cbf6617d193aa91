"""Decoding, limits and encoding of JSON-RPC messages."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from interlock.errors import LocalProtocolError, ParseError
from interlock.protocol import envelope
from interlock.protocol.envelope import MAX_BATCH, MAX_DEPTH, MAX_DIGITS, MAX_NODES
from interlock.types import CallToolParams
from tests.support.rows import each_row

PARSE_ERROR, INVALID_REQUEST = -32700, -32600

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20) + 1, 10**20 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=8), JSON, max_size=5)
IDS = st.integers(-(10**19), 10**19) | st.text(st.characters(codec="utf-8"), max_size=20)


def frame(rest: str, *, jsonrpc: str = '"2.0"') -> bytes:
    return f'{{"jsonrpc":{jsonrpc},{rest}}}'.encode("utf-8", "surrogatepass")


def params(value: str) -> bytes:
    return frame(f'"id":1,"method":"x","params":{value}')


def refusal(data: bytes) -> ParseError:
    with pytest.raises(ParseError) as caught:
        envelope.decode(data)
    assert "\n" not in str(caught.value)
    return caught.value


# Strict JSON


@each_row(
    "data",
    [
        b"",  # nothing
        b"hello",  # words
        params('{"a":NaN}'),  # NaN
        params('{"a":-Infinity}'),  # infinity
        frame(r'"id":"\ud800","method":"x"'),  # lone surrogate in an id
        b"\xef\xbb\xbf" * 2 + params("{}"),  # two byte order marks
        b"\x1b[" * 2 + b"mm" + params("{}"),  # a control sequence inside another one
        b"\x1b[0msent: " + params("{}"),  # a line of a log
        params("{}").decode().encode("utf-16"),  # UTF-16
        params('{"a":"%"}').replace(b"%", b"\xff"),  # bad UTF-8
        params('{"a":"%"}').replace(b"%", b"\xc0\xaf"),  # overlong UTF-8
        params('{"a":"\x01"}'),  # control character
        params(r'{"a":"\q"}'),  # unknown escape
        params('{"a":01}'),  # leading zero
        params('{"a":.5}'),  # no digit before the point
        params('{"a":1.}'),  # no digit after the point
        params('{"a":+1}'),  # plus sign
        params('{"a":1,}'),  # trailing comma
        params("{'a':1}"),  # single quotes
        params("{}/**/"),  # comment
        params("{}") + b"{}",  # two messages
        params('{"a":"')[:-1],  # unterminated string
        params("{}")[:-1],  # unterminated object
    ],
)
def test_invalid_json_is_a_parse_error(data: bytes):
    assert refusal(data).code == PARSE_ERROR


@each_row(
    "data, read",
    [
        (params(r'{"a":"\ud83d"}'), {"a": "\ufffd"}),
        (params(r'{"a":"x\uDE00y"}'), {"a": "x\ufffdy"}),
        (params(r'{"\ud800":1}'), {"\ufffd": 1}),
        (params('{"a":"\ud800"}'), {"a": "\ufffd"}),
        (params('{"a":"\ud83d\ude00"}'), {"a": "😀"}),  # each half encoded by itself
    ],
)
def test_halves_of_characters_are_joined_or_replaced(data: bytes, read: Any):
    assert msgspec.json.decode(envelope.decode(data).params) == read
    assert [envelope.decode(each) for each in envelope.split_batch(b"[%b]" % data)] == [
        envelope.decode(data)
    ]


@each_row(
    "data",
    [
        b'"hello"',  # string
        b"1",  # number
        b"[" + params("{}") + b"]",  # batch
        frame('"id":1', jsonrpc='"1.0"'),  # version 1.0
        frame('"id":1', jsonrpc="2.1"),  # another version, as a number
        b'{"id":1,"method":"x"}',  # no version
        frame('"id":1.5,"method":"x"'),  # fractional id
        frame('"id":1e2,"method":"x"'),  # id with an exponent
        frame('"id":true,"method":"x"'),  # id true
        frame('"id":[1],"method":"x"'),  # id in a list
        frame('"id":1,"method":3'),  # method a number
        frame('"id":1,"method":null'),  # method null
    ],
)
def test_json_that_is_not_a_message_is_an_invalid_request(data: bytes):
    assert refusal(data).code == INVALID_REQUEST


@each_row(
    ("data", "id", "method"),
    [
        (b"\xef\xbb\xbf" + params("{}"), 1, "x"),  # byte order mark
        (b"\x1b]0;ready\x07\x1b[?2004h" + params("{}") + b"\x1b[0m", 1, "x"),  # of a terminal
        (b"\xef\xbb\xbf\n " + params("{}"), 1, "x"),
        (b"\0" + params("{}") + b"\0", 1, "x"),  # texts of C
        (frame('"id":7.0,"method":"x"'), 7, "x"),  # id with a point
        (frame('"id":-7.00,"result":{}'), -7, UNSET),
        (frame('"id":7,"method":"x"', jsonrpc="2.0"), 7, "x"),  # version as a number
        (frame('"id":7,"method":"x"', jsonrpc="2"), 7, "x"),
        (frame('"id":7,"method":null,"params":null,"result":{},"error":null'), 7, UNSET),
    ],
)
def test_a_message_whose_meaning_is_plain_is_decoded(data: bytes, id: object, method: object):
    found = envelope.decode(data)

    assert (found.jsonrpc, found.id, type(found.id), found.method) == ("2.0", id, int, method)


@each_row(
    "data",
    [
        frame('"id":1.0,"id":2,"method":"x"'),
        frame('"id":1.0,"ID":2,"method":"x"'),
        frame('"id":1000000000000000.0,"method":"x"'),  # over 15 digits
    ],
)
def test_a_message_with_two_meanings_is_refused_in_any_form(data: bytes):
    assert refusal(data).code == INVALID_REQUEST


def test_an_id_keeps_its_type():
    assert envelope.decode(frame('"id":1,"method":"x"')).id == 1
    assert envelope.decode(frame('"id":"1","method":"x"')).id == "1"
    assert envelope.decode(frame('"id":null,"error":{}')).id is None
    assert envelope.decode(frame('"method":"x"')).id is UNSET


@given(
    st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace"))
)
def test_any_bytes_decode_or_are_a_parse_error(data: bytes):
    for each in (data, params("{}")[: len(data)] + data, b"[" + data + b"]"):
        for decode in (envelope.decode, decode_batch):
            with suppress(ParseError):
                decode(each)


# Members that other parsers may see differently


@each_row("key", ["jsonrpc", "id", "method", "params", "result", "error"])
@each_row("form", ["{0}:{1},{0}:{1}", "{0} : {1} , {0} : {1}", " {0}:{1},\n\t{0}:{1}"])
def test_a_member_given_twice_is_refused(key: str, form: str):
    others = {"jsonrpc": '"2.0"', "id": "7"}
    given = form.format(f'"{key}"', {**others, "method": '"x"'}.get(key, "{}"))
    rest = ",".join(f'"{name}":{each}' for name, each in others.items() if name != key)

    error = refusal(f"{{{rest},{given}}}".encode())

    assert error.code == INVALID_REQUEST
    assert str(error) == f"member given twice: {key}"


def test_a_member_given_twice_is_refused_however_it_is_written():
    twice = [
        r'"id":1,"\u0069d":2',
        '"x":1,"x":2',
        '"id":1,"id":1',
        '"result":{},"id":1,"result":{}',
    ]
    for rest in twice:
        assert "twice" in str(refusal(frame(rest)))


def test_many_duplicate_members_give_a_short_error():
    keys = [f'"{"k" * 50}{number:05}":1' for number in range(40_000)]

    error = refusal(frame(",".join(keys * 2)))

    assert str(error) == f"member given twice: {', '.join(['k' * 40] * 3)} and 39997 more"


@each_row("separators", [(",", ":"), (", ", ": "), (" ,\n", "\t: ")])
@each_row(
    "inside",
    [
        {"id": 2, "method": "y", "jsonrpc": "1.0", "params": {"id": 3}},
        {"list": [{"id": 1}, {"id": 2}], "text": '"id":1,"id":2'},
        {"Method": 1, "ID": 2, "escaped": '\\","id":5,"'},
        {},
    ],
)
def test_nested_members_are_not_taken_for_envelope_members(
    inside: dict[str, Any], separators: tuple[str, str]
):
    message = {"jsonrpc": "2.0", "id": 1, "method": "x", "params": inside}

    decoded = envelope.decode(json.dumps(message, separators=separators).encode())

    assert (decoded.id, decoded.method) == (1, "x")
    assert json.loads(bytes(decoded.params)) == inside


@each_row("key", ["Id", "ID", "Method", "mEthod", "PARAMS", "reſult", "Error"])
def test_members_in_another_case_are_refused(key: str):
    for rest in (
        f'"id":1,"{key}":{{}}',
        f'"{key}":{{}}, "id": 1',
        f'"id":1,"method":"x","{key}":1',
    ):
        assert str(refusal(frame(rest))) == f"member in wrong case: {key}"


def test_unknown_members_are_ignored():
    decoded = envelope.decode(frame('"id":1,"method":"x","trace":{"id":2},"_meta":{}'))

    assert (decoded.id, decoded.method, decoded.params) == (1, "x", UNSET)


# Bounds


@pytest.mark.slow("works through much data")
@each_row("opening", ["[", '{"a":'])
def test_depth_is_counted_with_the_envelope(opening: str):
    closing = "]" if opening == "[" else "}"

    def nested(depth: int) -> bytes:
        inner = depth - 1  # the message itself is a level
        leaf = "" if opening == "[" else "1"
        return params(opening * inner + leaf + closing * inner)

    envelope.decode(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 1_000, 100_000, 2_000_000):
        assert refusal(nested(depth)).code == INVALID_REQUEST


@pytest.mark.slow("works through much data")
def test_brackets_that_never_close_are_refused():
    for depth in (MAX_DEPTH + 1, 1_000, 2_000_000):
        assert refusal(b"[" * depth).code == INVALID_REQUEST
        assert refusal(params('{"a":' * depth)).code == INVALID_REQUEST


def test_nesting_depth_ignores_brackets_and_commas_inside_strings():
    tricky = ['[{,"' * 100_000, '\\"[' * 100_000, "\\" * 99, '"' * 1_000, "]" * 100, '\\\\"{[']

    decoded = envelope.decode(params(json.dumps({"texts": tricky})))

    assert json.loads(bytes(decoded.params)) == {"texts": tricky}


def test_nesting_depth_counts_brackets_after_strings_with_escapes():
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    for text in ("", "\\", '\\"', '"', "\\\\", '\\\\"', "[", "]" * 200):
        assert "deep" in str(refusal(params(f"[{json.dumps(text)},{deep}]")))


def test_message_of_40_000_rows_is_decoded():
    rows = json.dumps([[number, "name", 1.5] for number in range(40_000)])
    assert envelope.decode(params(rows)).params is not UNSET


@pytest.mark.slow("decodes messages of a million values")
def test_message_with_too_many_values_is_refused():
    envelope.decode(params(f"[{'0,' * (MAX_NODES - 100)}0]"))
    for item in ("0,", "[],", "{},", '"",', '"\\"",'):
        assert "over 1,048,576 values" in str(refusal(params(f"[{item * MAX_NODES}0]")))
    members = ",".join(f'"{number}":0' for number in range(MAX_NODES))
    assert "over 1,048,576 values" in str(refusal(params(f"{{{members}}}")))


@pytest.mark.slow("works through much data")
def test_message_longer_than_the_usual_limit_may_have_more_values():
    values = MAX_NODES * 5 // 4
    envelope.decode(params(f'[{"0," * values}"{"x" * 20 * values}"]'))


def test_a_long_text_counts_as_one_value():
    envelope.decode(params(json.dumps({"text": "a, b, [c], {d} " * 200_000})))


@each_row("sign", ["", "-"])
def test_integers_have_at_most_twenty_digits(sign: str):
    envelope.decode(params(f'{{"a":{sign}{"9" * MAX_DIGITS}}}'))
    envelope.decode(frame(f'"id":{sign}{"9" * MAX_DIGITS},"method":"x"'))
    for digits in (MAX_DIGITS + 1, 5_000, 1_000_000):
        assert "digits" in str(refusal(params(f'{{"a":{sign}{"9" * digits}}}')))
        assert "digits" in str(refusal(params(f'["",{sign}{"9" * digits}]')))
    assert "digits" in str(refusal(frame(f'"id":{sign}{"9" * 21},"method":"x"')))


@each_row("size", [0, 2_000, 5_000, 200_000])
def test_bounds_are_the_same_in_frames_of_every_size(size: int):
    for more in range(12):  # large ones are not looked at byte by byte
        text = "x" * (size + more)
        deep = "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2)
        many = "0," * (MAX_NODES - 10) + "0"
        longest = "9" * MAX_DIGITS

        envelope.decode(params(f'["{text}",{deep}]'))
        envelope.decode(params(f'["{text}",{longest}]'))
        envelope.decode(params(f'["{text}{longest}0"]'))
        assert "levels" in str(refusal(params(f'["{text}",[{deep}]]')))
        assert "digits" in str(refusal(params(f'["{text}",{longest}0]')))
        if more == 0:
            envelope.decode(params(f'["{text}",{many}]'))
            assert "values" in str(refusal(params(f'["{text}",{many}{",0" * 10}]')))


def test_number_of_digits_is_limited_in_integers_only():
    pi = "3." + "1415926535" * 10
    for value in (
        pi,
        "1" * 30 + ".5",
        "1" * 30 + "e5",
        json.dumps("9" * 5_000),
        '{"%s":1}' % ("9" * 99),
    ):
        envelope.decode(params(f"[{value}]"))


def work(data: bytes) -> int:
    """Count the steps of the interpreter; those in C are linear by what is called."""
    steps = 0

    def count(*_: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    try:
        with pytest.raises(ParseError):
            envelope.decode(data)
    finally:
        sys.settrace(None)
    return steps


@each_row("bomb", ["[", '{"a":', "9", '"', '\\"', "[]", "[1,", '"",', "]", '["', "9.", "9e"])
def test_refusal_of_a_nested_bomb_takes_bounded_work(bomb: str):
    small, large = (work(params(bomb * size)) for size in (20_000, 400_000))

    assert large <= small + 2_000


# Encoding


@each_row(
    ("arguments", "where"),
    [
        ({"text": "ab\ud800"}, "arguments.text"),
        ({"filter": {"items": ["a", "b", "ab\udc00"]}}, "arguments.filter.items[2]"),
        ({"a": 1, "ab\ud800": 1}, r"arguments['ab\ud800']"),
    ],
)
def test_encode_large_names_the_place_of_invalid_unicode(arguments: Any, where: str):
    with pytest.raises(LocalProtocolError) as raised:
        envelope.encode_large(CallToolParams(name="add", arguments=arguments))
    assert str(raised.value) == (
        f"{where} is not valid Unicode (half of a surrogate pair at character 2);"
        " remove or replace it"
    )


# Batches


def decode_batch(data: bytes) -> list[envelope.Envelope]:
    return [envelope.decode(each) for each in envelope.split_batch(data)]


def test_a_batch_is_split_into_its_messages_good_and_bad_in_order():
    good, bad, null = frame('"id":1,"method":"x"'), frame('"id":1.5'), b"null"

    split = envelope.split_batch(b"[" + b", ".join([good, bad, null]) + b"]")

    assert split == [good, bad, null]


@each_row("count", [0, MAX_BATCH + 1])
def test_a_batch_has_one_to_a_hundred_messages(count: int):
    with pytest.raises(ParseError, match=f"batch of {count} messages") as caught:
        envelope.split_batch(b"[" + b",".join([params("{}")] * count) + b"]")
    assert caught.value.code == INVALID_REQUEST


def test_batch_has_the_limits_of_a_message():
    for data in (
        b"[" * 100_000,
        b"[" + params("[" * 70 + "]" * 70) + b"]",
        b"[1",
        b"[NaN]",
        b"[" + b"0," * MAX_NODES + b"0]",
        b"\xff",
    ):
        with pytest.raises(ParseError):
            decode_batch(data)


# The id of what cannot be decoded


@each_row(
    ("data", "id"),
    [
        (frame('"id":7,"result":{"a":NaN}'), 7),
        (frame('"id" : "a-1" , "result":{"a":NaN}'), "a-1"),
        (frame('"result":{"a":NaN},"id":7'), 7),
        (b'{"id":7,"jsonrpc":"2.0","result":[NaN]}', 7),
        (frame('"id":7,"result":{"a":"\xff"}'), 7),
        (frame('"id":7.5,"result":{}'), None),
        (frame('"id":true,"result":{}'), None),
        (frame('"result":{"id":7,"a":NaN}'), None),
        (frame(f'"id":{"9" * 19},"result":NaN'), None),
        (b"hello", None),
        (b"", None),
    ],
)
def test_id_of_a_malformed_response_is_found_at_its_usual_places(data: bytes, id: object):
    found = envelope.id_of(data)

    assert (found, type(found)) == (id, type(id))


@each_row(
    "rest",
    [
        '"id":7,"method":"ping","params":NaN',
        '"method":"ping","params":NaN,"id":7',
        '"params":NaN,"method":"ping","id":7',
        ' "id": 7, "method": "ping", "params": NaN',
    ],
)
def test_id_of_a_malformed_request_is_not_a_response_id(rest: str):
    assert envelope.id_of(frame(rest)) is None


# Encoding


@pytest.mark.slow("made-up input, and much of it")
@given(id=IDS, method=st.text(st.characters(codec="utf-8"), max_size=20), params=OBJECTS)
def test_decoded_request_equals_the_encoded_request(
    id: int | str, method: str, params: dict[str, Any]
):
    decoded = envelope.decode(envelope.request(id, method, envelope.encode(params)))

    assert (decoded.id, type(decoded.id), decoded.method) == (id, type(id), method)
    given = {} if decoded.params is UNSET else msgspec.json.decode(decoded.params)
    assert given == msgspec.json.decode(envelope.encode(params))


@pytest.mark.slow("made-up input, and much of it")
@given(id=IDS, result=OBJECTS, message=st.text(st.characters(codec="utf-8")), data=JSON)
def test_decoded_response_equals_the_encoded_response(
    id: int | str, result: dict[str, Any], message: str, data: Any
):
    answer = envelope.decode(envelope.result(id, envelope.encode(result)))
    assert answer.id == id
    assert msgspec.json.decode(answer.result) == msgspec.json.decode(envelope.encode(result))

    failure = envelope.decode(envelope.error(id, -32603, message, data))
    told = msgspec.json.decode(failure.error)
    assert (failure.id, told["code"], told["message"]) == (id, -32603, message)
    assert told.get("data") == msgspec.json.decode(envelope.encode(data))


def test_frames_are_compact_and_leave_out_empty_members():
    assert envelope.request(1, "ping", b"{}") == b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    assert envelope.notification("n", b"{}") == b'{"jsonrpc":"2.0","method":"n"}'
    assert (
        envelope.notification("n", b'{"a":1}') == b'{"jsonrpc":"2.0","method":"n","params":{"a":1}}'
    )
    assert envelope.result("a", b"{}") == b'{"jsonrpc":"2.0","id":"a","result":{}}'
    assert (
        envelope.error(None, -32700, "no")
        == b'{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}'
    )


@each_row(
    ("params", "meta", "whole"),
    [
        (b"{}", b"", {}),
        (b'{"a":1}', b"", {"a": 1}),
        (b"{}", b'"k":1', {"_meta": {"k": 1}}),
        (b'{"a":1}', b'"k":1,"l":"x"', {"_meta": {"k": 1, "l": "x"}, "a": 1}),
    ],
)
def test_meta_is_inserted_into_the_params(params: bytes, meta: bytes, whole: dict[str, Any]):
    assert json.loads(envelope.with_meta(params, meta)) == whole


@each_row("value", [{}, {"a": ["b", None, 1.5]}, "x" * 100_000], ids=["{}", "{…}", "x…"])
def test_encode_large_returns_the_same_bytes_as_encode(value: object):
    assert envelope.encode_large(value) == envelope.encode(value)
