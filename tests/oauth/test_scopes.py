"""Which scopes are asked for."""

from __future__ import annotations

import pytest

from interlock.oauth.challenges import Challenge
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata
from interlock.oauth.scopes import MAX_MISSING, MAX_REQUESTED, add_missing, scopes_to_request


def found(*supported: str, by_server: tuple[str, ...] | None = None) -> Discovery:
    metadata = ServerMetadata("https://as.example", scopes_supported=list(supported) or None)
    return Discovery("https://mcp.example/mcp", by_server, metadata)


def test_what_the_challenge_names_is_asked_for():
    asked = scopes_to_request(Challenge(scopes=("a", "b")), found(by_server=("a", "b", "c")))

    assert asked == ("a", "b")


def test_without_a_challenge_it_is_all_that_the_server_supports():
    assert scopes_to_request(Challenge(), found("x", by_server=("a", "b"))) == ("a", "b")


def test_without_either_nothing_is_asked_for():
    assert scopes_to_request(Challenge(), found("x", "offline_access")) == ()


def test_a_step_up_asks_for_what_was_asked_before_as_well():
    asked = scopes_to_request(
        Challenge(scopes=("c", "a")), found(by_server=("z",)), before=("a", "b")
    )

    assert asked == ("a", "b", "c")


def test_what_the_operator_wants_counts_instead_of_all_that_there_is():
    server = found(by_server=("a", "b", "c"))

    assert scopes_to_request(Challenge(), server, wanted=("b",)) == ("b",)
    assert scopes_to_request(Challenge(scopes=("a",)), server, wanted=("b",)) == ("b", "a")


def test_offline_access_is_added_where_the_authorization_server_lists_it():
    asked = scopes_to_request(Challenge(scopes=("a",)), found("a", "offline_access"))

    assert asked == ("a", "offline_access")


@pytest.mark.parametrize("supported", [(), ("a",)], ids=["no list", "another list"])
def test_offline_access_is_never_asked_for_elsewhere(supported: tuple[str, ...]):
    server = found(*supported, by_server=("a", "offline_access"))

    assert scopes_to_request(Challenge(), server) == ("a",)
    assert scopes_to_request(Challenge(scopes=("offline_access", "a")), server) == ("a",)
    assert scopes_to_request(Challenge(), server, wanted=("a", "offline_access")) == ("a",)


def test_scopes_are_remembered_once_and_within_bounds():
    assert add_missing("", ("a", "b", "a")) == "a b"
    assert add_missing("a b", ("b", "c")) == "a b c"
    assert add_missing("a", ("x" * 2_000, "b")) == "a b"
    assert add_missing("", ("x" * MAX_MISSING,)) == "x" * MAX_MISSING
    assert len(add_missing("", tuple(map(str, range(5_000))))) <= MAX_MISSING


def test_a_server_that_wants_another_scope_each_time_gets_no_end_of_them():
    """R-118."""
    asked: tuple[str, ...] = ()
    for number in range(2 * MAX_REQUESTED):
        asked = scopes_to_request(Challenge(scopes=(f"s{number}",)), found(), asked)

    assert len(asked) == MAX_REQUESTED
    assert asked[-1] == f"s{2 * MAX_REQUESTED - 1}"
