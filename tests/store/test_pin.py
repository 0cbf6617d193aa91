"""Pins after a list has arrived: accepted, new, changed or gone."""

from __future__ import annotations

from collections.abc import Mapping

from interlock.store.pin import TOOL_KINDS, Key, Offered, Pin, compare

SERVER = Offered("server", "", {"command": "crm"})
REFUND = Offered("tool", "refund", {"name": "refund", "description": "a"})
CHANGED = Offered("tool", "refund", {"name": "refund", "description": "b"})


def after(known: Mapping[Key, Pin], *offered: Offered, accepts_first: bool = True, now: int = 1):
    return compare("crm", known, offered, TOOL_KINDS, accepts_first=accepts_first, now=now)


def states(pins: Mapping[Key, Pin]) -> dict[str, str]:
    return {pin.address: pin.state for pin in pins.values()}


def test_first_list_is_accepted_unless_it_must_be_reviewed():
    assert states(after({}, SERVER, REFUND)) == {"crm": "accepted", "crm:refund": "accepted"}
    reviewed = after({}, SERVER, REFUND, accepts_first=False)
    assert states(reviewed) == {"crm": "new", "crm:refund": "new"}
    assert all(pin.waits and pin.hash is None for pin in reviewed.values())


def test_added_or_changed_tool_waits_while_accepted_tools_stay_usable():
    first = after({}, SERVER, REFUND)

    later = after(first, SERVER, CHANGED, Offered("tool", "more", {"name": "more"}))

    assert states(later) == {"crm": "accepted", "crm:refund": "changed", "crm:more": "new"}
    pin = later["tool", "refund"]
    assert (pin.hash, pin.seen_hash) == (REFUND.hash, CHANGED.hash)


def test_reverted_change_of_a_definition_needs_no_decision():
    changed = after(after({}, SERVER, REFUND), SERVER, CHANGED, now=2)

    back = after(changed, SERVER, REFUND, now=3)["tool", "refund"]

    assert (back.state, back.seen_hash, back.since) == ("accepted", None, 3)


def test_missing_tool_is_marked_gone_if_accepted_and_forgotten_if_not():
    known = after({}, SERVER, REFUND)
    known = after(known, SERVER, REFUND, Offered("tool", "more", {"name": "more"}))

    left = after(known, SERVER)

    assert states(left) == {"crm": "accepted", "crm:refund": "gone"}


def test_order_of_members_does_not_change_a_hash():
    other = Offered("tool", "refund", {"description": "a", "name": "refund"})

    assert other.hash == REFUND.hash
    assert CHANGED.hash != REFUND.hash
