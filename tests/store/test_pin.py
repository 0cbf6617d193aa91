"""Pins after a list has arrived: accepted, new, changed or gone."""

from __future__ import annotations

from collections.abc import Mapping

from interlock.store.pin import SERVER as SERVER_KEY
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


# Another way of writing definitions

STATED = {"name": "refund", "description": "a"}
REWRITTEN = Offered("tool", "refund", {**STATED, "title": "Refund"}, stated=STATED, format=2)
ALSO_CHANGED = Offered(
    "tool", "refund", {"name": "refund", "title": "R"}, stated={"name": "refund"}, format=2
)


def test_definition_that_only_a_newer_interlock_writes_differently_stays_accepted():
    known = after({}, SERVER, REFUND)

    later = after(known, SERVER, REWRITTEN)
    pin = later["tool", "refund"]
    accepted = {**later, pin.key: pin.accepted()}

    assert (pin.state, pin.waits, pin.is_rewritten) == ("accepted", False, True)
    assert (pin.hash, pin.format) == (REFUND.hash, 1)
    assert (pin.seen_hash, pin.seen_format) == (REWRITTEN.hash, 2)
    assert after(later, SERVER, REWRITTEN) == later
    assert after(accepted, SERVER, REWRITTEN) == accepted
    assert not accepted[pin.key].is_rewritten


def test_definition_that_also_changed_at_its_server_waits_before_and_after_others_are_accepted():
    known = after({}, SERVER, REFUND)

    later = after(known, SERVER, ALSO_CHANGED)["tool", "refund"]
    rewritten = after(known, SERVER, REWRITTEN)
    again = after(rewritten, SERVER, ALSO_CHANGED)["tool", "refund"]

    assert (later.state, later.waits, later.is_rewritten) == ("changed", True, False)
    assert (again.state, again.is_rewritten) == ("changed", False)


def test_gateways_of_two_versions_accept_the_same_definition_and_refuse_the_same_change():
    pin = after(after({}, SERVER, REFUND), SERVER, REWRITTEN)["tool", "refund"].accepted()
    known = {SERVER_KEY: after({}, SERVER)[SERVER_KEY], pin.key: pin}

    assert after(known, SERVER, REFUND) == known  # of the older version
    assert after(known, SERVER, CHANGED)[pin.key].state == "changed"
    assert after(known, SERVER, ALSO_CHANGED)[pin.key].state == "changed"


def test_definitions_restored_from_a_pin_keep_its_format_until_the_server_is_listed():
    known = after({}, SERVER, REFUND)
    restored = Offered.kept(known["tool", "refund"])
    assert restored is not None
    assert restored.format == 1

    assert after(known, SERVER, restored) == known
    rewritten = after(known, SERVER, REWRITTEN)
    restored = Offered.kept(rewritten["tool", "refund"])
    assert restored is not None
    assert after(rewritten, SERVER, restored) == rewritten
