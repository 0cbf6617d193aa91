"""Which scopes are requested."""

from __future__ import annotations

from interlock.oauth.challenges import Challenge
from interlock.oauth.discovery import Discovery
from interlock.oauth.documents import ServerMetadata
from interlock.oauth.scopes import MAX_MISSING, MAX_REQUESTED, add_missing, scopes_to_request
from tests.support.rows import each_row


def found(*supported: str, by_server: tuple[str, ...] | None = None) -> Discovery:
    metadata = ServerMetadata("https://as.example", scopes_supported=list(supported) or None)
    return Discovery("https://mcp.example/mcp", by_server, metadata)


def test_scopes_of_the_challenge_are_requested():
    asked = scopes_to_request(Challenge(scopes=("a", "b")), found(by_server=("a", "b", "c")))

    assert asked == ("a", "b")


def test_without_a_challenge_all_supported_scopes_are_requested():
    assert scopes_to_request(Challenge(), found("x", by_server=("a", "b"))) == ("a", "b")


def test_without_challenge_and_supported_scopes_none_are_requested():
    assert scopes_to_request(Challenge(), found("x", "offline_access")) == ()


def test_a_step_up_also_requests_the_earlier_scopes():
    asked = scopes_to_request(
        Challenge(scopes=("c", "a")), found(by_server=("z",)), before=("a", "b")
    )

    assert asked == ("a", "b", "c")


def test_configured_scopes_replace_the_supported_ones():
    server = found(by_server=("a", "b", "c"))

    assert scopes_to_request(Challenge(), server, wanted=("b",)) == ("b",)
    assert scopes_to_request(Challenge(scopes=("a",)), server, wanted=("b",)) == ("b", "a")


def test_offline_access_is_requested_if_the_authorization_server_supports_it():
    asked = scopes_to_request(Challenge(scopes=("a",)), found("a", "offline_access"))

    assert asked == ("a", "offline_access")


@each_row("supported", [(), ("a",)], ids=["no list", "another list"])
def test_offline_access_is_not_requested_if_only_the_protected_server_names_it(
    supported: tuple[str, ...],
):
    server = found(*supported, by_server=("a", "offline_access"))

    assert scopes_to_request(Challenge(), server) == ("a",)
    assert scopes_to_request(Challenge(scopes=("offline_access", "a")), server) == ("a",)
    assert scopes_to_request(Challenge(), server, wanted=("a", "offline_access")) == ("a",)


def test_add_missing_adds_each_scope_once_up_to_the_limit():
    assert add_missing("", ("a", "b", "a")) == "a b"
    assert add_missing("a b", ("b", "c")) == "a b c"
    assert add_missing("a", ("x" * 2_000, "b")) == "a b"
    assert add_missing("", ("x" * MAX_MISSING,)) == "x" * MAX_MISSING
    assert len(add_missing("", tuple(map(str, range(5_000))))) <= MAX_MISSING


def test_a_server_that_requires_another_scope_each_time_gets_a_limited_number():
    """R-118."""
    asked: tuple[str, ...] = ()
    for number in range(2 * MAX_REQUESTED):
        asked = scopes_to_request(Challenge(scopes=(f"s{number}",)), found(), asked)

    assert len(asked) == MAX_REQUESTED
    assert asked[-1] == f"s{2 * MAX_REQUESTED - 1}"
