"""The tables of revisions, against the specification's own words."""

from __future__ import annotations

from interlock import revisions
from interlock.revisions import ALL, CLIENT_METHODS, LEGACY, MODERN, SERVER_METHODS, has_method
from tests.support.rows import each_row


def known(methods: dict[str, revisions.Method], revision: str) -> set[str]:
    return {name for name in methods if has_method(methods, name, revision)}


EVERYWHERE = {
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
}
LEGACY_ONLY = {
    "initialize",
    "ping",
    "logging/setLevel",
    "resources/subscribe",
    "resources/unsubscribe",
}
MODERN_ONLY = {"server/discover", "subscriptions/listen"}


@each_row("revision", LEGACY)
def test_legacy_revisions_have_a_handshake_and_no_discovery(revision: str):
    assert known(CLIENT_METHODS, revision) == EVERYWHERE | LEGACY_ONLY
    assert not revisions.is_modern(revision)


@each_row("revision", MODERN)
def test_modern_revisions_have_discovery_and_no_handshake(revision: str):
    assert known(CLIENT_METHODS, revision) == EVERYWHERE | MODERN_ONLY
    assert revisions.is_modern(revision)


def test_elicitation_is_a_server_method_from_2025_06_18_on():
    old = {"ping", "roots/list", "sampling/createMessage"}

    assert known(SERVER_METHODS, "2024-11-05") == known(SERVER_METHODS, "2025-03-26") == old
    assert known(SERVER_METHODS, "2025-06-18") == old | {"elicitation/create"}
    assert known(SERVER_METHODS, "2026-07-28") == (old | {"elicitation/create"}) - {"ping"}


def test_only_calls_gets_and_reads_may_require_input():
    may_ask = {name for name, method in CLIENT_METHODS.items() if method.may_ask}

    assert may_ask == {"tools/call", "resources/read", "prompts/get"}


def test_every_method_begins_and_ends_with_a_known_revision():
    for method in (*CLIENT_METHODS.values(), *SERVER_METHODS.values()):
        assert ALL.index(method.first) <= ALL.index(method.last)


def test_revisions_are_compared_by_their_place_in_the_list():
    for place, revision in enumerate(ALL):
        for other_place, other in enumerate(ALL):
            assert revisions.at_least(revision, other) == (place >= other_place)


@each_row("unknown", ["", "2027-01-01", "2025-11-26", "DRAFT", "9999-99-99"])
def test_an_unknown_revision_is_older_than_all_and_has_nothing(unknown: str):
    assert not revisions.at_least(unknown, ALL[0])
    assert not revisions.is_modern(unknown)
    assert known(CLIENT_METHODS, unknown) == set()


def test_extension_methods_are_in_no_revision_table():
    assert not has_method(CLIENT_METHODS, "tasks/get", ALL[-1])
    assert not has_method(CLIENT_METHODS, "toString", ALL[-1])


def test_batches_belong_to_one_revision():
    assert {"2025-03-26"} == revisions.BATCHES
