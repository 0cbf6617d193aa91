"""The lines of the wire."""

from __future__ import annotations

import asyncio

from interlock.text.redaction import Redactor
from interlock.web.inspector import wire as inspect_wire
from interlock.web.inspector.wire import InspectedWire


def test_answer_has_the_method_and_the_name_of_its_request():
    wire = InspectedWire()
    wire.sent(b'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"find"}}')
    wire.received(b'{"jsonrpc":"2.0","id":7,"result":{}}')

    asked, answered = wire.entries()
    assert (asked.form, asked.method, asked.name) == ("request", "tools/call", "find")
    assert (answered.form, answered.method, answered.of) == ("result", "tools/call", asked.n)
    assert answered.ms is not None
    assert wire.answer("tools/call", "find", 0) is answered


def test_invalid_line_is_kept_as_it_came_with_the_reason():
    wire = InspectedWire()
    wire.received(b"hello \xff")
    wire.received(b'{"jsonrpc":"1.0","id":1,"result":{}}')

    garbage, old = wire.entries()
    assert (garbage.form, garbage.text) == ("invalid", "hello \\xff")
    assert "UTF-8" in garbage.problem
    assert '"jsonrpc" is not "2.0"' in old.problem


def test_secret_is_removed_from_messages_and_from_stderr_that_comes_in_pieces():
    wire = InspectedWire()
    wire.redactor = Redactor(["canary-1"])
    wire.sent(b'{"jsonrpc":"2.0","method":"x","params":{"key":"canary-1"}}')
    wire.noted("stderr", "token cana")
    wire.noted("stderr", "ry-1\nlast")
    wire.noted("exit", "exit code 1")

    assert [each.text for each in wire.entries()][1:] == ["token ***", "last", "exit code 1"]
    assert "canary" not in wire.entries()[0].text


def test_oldest_entries_make_room_for_new_ones(monkeypatch):
    monkeypatch.setattr(inspect_wire, "MAX_ENTRIES", 3)
    wire = InspectedWire()
    for number in range(5):
        wire.noted("stderr", f"{number}\n")

    assert [each.text for each in wire.since(0, 10)] == ["2", "3", "4"]
    assert [each.n for each in wire.since(3, 1)] == [4]
    assert wire.dropped == 2


async def test_waiting_ends_with_the_next_entry():
    wire = InspectedWire()
    waiting = asyncio.create_task(wire.wait(0, 60))
    await asyncio.sleep(0)
    wire.noted("exit", "exit code 0")

    await waiting
