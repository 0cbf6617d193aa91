"""What a request states about itself, checked."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from interlock import revisions
from interlock.errors import InvalidArguments, RemoteError
from interlock.observing import TraceContext
from interlock.revisions import NEWEST
from interlock.server.request_context import Stated, check_method, progress_token, stated_in
from interlock.types import JsonObject
from tests.support.rows import each_row
from tests.test_observing import MALFORMED

MODERN = {revisions.VERSION_KEY: NEWEST, revisions.CLIENT_CAPABILITIES_KEY: {}}


def stated(**members: Any) -> Stated:
    return stated_in(msgspec.json.encode({**MODERN, **members}))


def test_a_request_without_a_revision_is_legacy():
    assert stated_in(b"{}").revision == ""
    assert stated_in(b'{"progressToken":7}').progress_token == 7


def test_a_modern_request_states_its_capabilities_level_and_client():
    found = stated_in(
        msgspec.json.encode(
            {
                revisions.VERSION_KEY: NEWEST,
                revisions.CLIENT_CAPABILITIES_KEY: {"sampling": {}},
                revisions.LOG_LEVEL_KEY: "info",
                revisions.CLIENT_INFO_KEY: {"name": "c", "version": "1"},
            }
        )
    )

    assert found.client_capabilities.sampling is not None
    assert (found.revision, found.log_level) == (NEWEST, "info")
    assert found.client_info is not None


@each_row(
    ("members", "problem"),
    [
        ({revisions.CLIENT_CAPABILITIES_KEY: None}, "_meta lacks .*clientCapabilities"),
        ({revisions.VERSION_KEY: 7}, "_meta lacks .*protocolVersion"),
        ({revisions.LOG_LEVEL_KEY: "loud"}, "log level 'loud' is not one of"),
    ],
)
def test_invalid_metadata_is_refused(members: Any, problem: str):
    with pytest.raises(InvalidArguments, match=problem):
        stated(**members)


def test_an_unknown_revision_is_refused_with_the_known_ones():
    with pytest.raises(RemoteError) as refused:
        stated(**{revisions.VERSION_KEY: "2099-01-01"})

    assert refused.value.code == revisions.UNSUPPORTED_VERSION
    assert refused.value.data["supported"] == list(revisions.MODERN)


def test_malformed_information_about_the_client_is_ignored():
    assert stated(**{revisions.CLIENT_INFO_KEY: 7}).client_info is None


@each_row(("token", "valid"), [("a", True), (7, True), (True, False), (1.5, False), (None, False)])
def test_a_progress_token_is_text_or_an_integer(token: object, valid: bool):
    assert (progress_token({"progressToken": token}) is not None) is valid


def test_a_method_of_other_revisions_is_unknown_and_one_of_an_extension_passes():
    check_method("tasks/x-own", NEWEST)
    with pytest.raises(RemoteError) as refused:
        check_method("initialize", NEWEST)

    assert refused.value.code == revisions.METHOD_NOT_FOUND


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-%02x"


@each_row("separators", [(",", ":"), (", ", ": ")])
@each_row("first", [True, False])
def test_requests_that_differ_in_their_trace_share_what_later_caches_know_by_identity(
    separators: tuple[str, str], first: bool
):
    rest = {revisions.CLIENT_INFO_KEY: {"name": "c", "version": "1"}, **MODERN}

    def read(number: int) -> Stated:
        new = {"traceparent": TRACE % number, "tracestate": f"a={number}", "progressToken": number}
        members = {**new, **rest} if first else {**rest, **new, "baggage": f"user={number}"}
        found = stated_in(json.dumps(members, separators=separators).encode())
        assert found.meta == members
        assert found.trace == TraceContext(TRACE % number, f"a={number}")
        assert found.progress_token == number
        return found

    one, two = read(1), read(2)

    assert one.client_capabilities is two.client_capabilities
    assert one.client_info is two.client_info


@each_row("is_first", [True, False])
def test_requests_with_a_trace_alone_share_the_rest(is_first: bool):
    def read(number: int) -> Stated:
        new = {"traceparent": TRACE % number}
        members = {**new, **MODERN} if is_first else {**MODERN, **new}
        found = stated_in(json.dumps(members, separators=(",", ":")).encode())
        assert found.meta == members
        assert found.trace == TraceContext(TRACE % number)
        return found

    assert read(1).client_capabilities is read(2).client_capabilities


@each_row(
    ("encoded", "trace"),
    [
        (b'{"x":{"traceparent":"%b"}}', False),
        (b'{"x":"\\"traceparent\\":\\"%b\\""}', False),
        (b'{"x":{"traceparent":"a"},"traceparent":"%b"}', True),
        (b'{"traceparent":"a","traceparent":"%b"}', True),
        (b'{"x":"\\u00e9","traceparent":"%b"}', True),
        (b'{"traceparent":{"a":"%b"}}', False),
        (b'{"progressToken":1.5,"traceparent":"%b"}', True),
        (b'{"progressToken":1e3}', False),
        (b'{"x":{"traceparent":"%b"},"tracestate":null}', False),
        (b'{\n "x": 1,\n "traceparent": "%b"\n}', True),
        (b'{"traceparent":"%b"}', True),
        (b'{"x":1,"traceparent":"%b" }', True),
        (b'{"x":1 ,"traceparent":"%b","y":2}', True),
        (b'{"x":["traceparent"],"traceparent":"%b","y":2}', True),
        (b'{"x\\"traceparent":"%b","y":2}', False),
        (b'{"traceparent":"%b","y":2}', True),
        (b'{"y":2,"traceparent":"%b"}', True),
        (b'{"y":{"x":2,"traceparent":"%b"}}', False),
        (b'{"traceparent":"%b","traceparent":"a"}', False),
        (b'{"traceparent":"a","x":1,"traceparent":"%b"}', True),
        (b'{"x":"\\",\\"traceparent\\":\\"%b","traceparent":"%b"}', True),
    ],
)
def test_only_a_member_of_meta_itself_is_the_trace(encoded: bytes, trace: bool):
    encoded = encoded.replace(b"%b", (TRACE % 1).encode())

    found = stated_in(encoded)

    assert found.meta == json.loads(encoded)
    assert (found.trace is not None) is trace


@each_row("value", [each for each in MALFORMED if isinstance(each, str)])
@each_row("is_first", [True, False])
def test_a_malformed_trace_is_none_wherever_it_stands(value: str, is_first: bool):
    new: JsonObject = {"traceparent": value}
    members = {**new, **MODERN} if is_first else {**MODERN, **new}

    found = stated_in(msgspec.json.encode(members))

    assert (found.meta, found.trace) == (members, None)
