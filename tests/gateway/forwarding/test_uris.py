"""URIs of several servers side by side."""

from __future__ import annotations

from interlock.gateway.forwarding.uris import MAX_LINKS, Uris
from tests.support.rows import each_row


def test_unique_uri_is_unchanged_and_shared_uri_gets_its_servers_prefix():
    uris = Uris()
    uris.compare({"a": ["x://1", "x://2"], "b": ["x://2"], "c": ["x://3"]})

    assert uris.shown("a", "x://1") == "interlock://servers/a/x://1"
    assert uris.shown("b", "x://2") == "interlock://servers/b/x://2"
    assert uris.shown("c", "x://3") == "x://3"


def test_prefix_stays_when_the_other_server_has_gone():
    uris = Uris()
    uris.compare({"a": ["x://1"], "b": ["x://1"]})
    uris.compare({"a": ["x://1"]})

    assert uris.shown("a", "x://1") == "interlock://servers/a/x://1"


@each_row("server", ["a", "a/b", "ä %", "a%2Fb"])
def test_prefixed_uri_can_be_split_whatever_the_server_is_called(server: str):
    uris = Uris()
    uris.compare({server: ["x://1/2"], "other": ["x://1/2"]})

    assert uris.split(uris.shown(server, "x://1/2")) == (server, "x://1/2")
    assert uris.split("x://1/2") is None
    assert uris.split("interlock://servers/unknown/x://1") is None


@each_row(
    ("uris", "shown"),
    [
        ({"a": ["x://{id}"], "b": ["x://{id}/page"]}, ["a", "b"]),  # "{id}" may be "7/page"
        ({"a": ["x://{id}"], "b": ["{+any}"], "c": ["y://{id}"]}, ["a", "b", "c"]),
        ({"a": ["x://{id}", "x://{id}/page"], "b": ["y://{id}"], "c": ["x:{id}"]}, ["a", "c"]),
        ({"a": ["x://{id}"], "b": ["y://{id}", "x://1"]}, ["a", "b"]),  # a template of a has it
        ({"a": ["x://{id}", "x://1"], "b": ["y://{id}", "x:/1"]}, []),
    ],
)
def test_templates_that_may_match_one_uri_get_their_servers_prefix(
    uris: dict[str, list[str]], shown: list[str]
):
    compared = Uris()
    compared.compare(uris)

    assert [each for each in uris if compared.is_prefixed(each)] == shown


@each_row(
    ("uri", "prefix"),
    [
        ("x://listed", "interlock://servers/b/"),
        ("x://a/7", "interlock://servers/b/"),
        ("linked://1", "interlock://servers/b/"),
        ("x://shared", "interlock://servers/b/"),
        ("x://shared/7", "interlock://servers/b/"),
        ("interlock://servers/a/x://1", "interlock://servers/b/"),
        ("x://own", ""),
        ("x://b/7", ""),
        ("free://1", ""),
    ],
)
def test_link_to_another_servers_uri_leads_to_the_server_that_links(uri: str, prefix: str):
    uris = Uris()
    shared = ["x://shared", "x://shared/{id}"]
    own = {"a": ["x://listed", "x://a/{id}"], "b": ["x://own", "x://b/{id}"]}
    uris.compare({**own, "c": shared, "d": shared})
    uris.link("a", "linked://1")

    assert uris.link("b", uri) == prefix + uri
    assert uris.linked(prefix + uri) == ("b", uri)
    assert uris.linked("linked://1") == ("a", "linked://1")


@each_row(
    ("listed", "linked"),
    [
        ({"a": ["x://1"]}, None),
        ({"a": ["x://{id}"]}, None),
        ({"a": ["x://{id}"], "b": ["x://{id}"]}, None),
        ({"a": ["y://{id}"]}, ("b", "x://1")),
        ({"b": ["x://{id}"]}, ("b", "x://1")),
    ],
)
def test_link_does_not_keep_a_uri_that_another_server_turns_out_to_have(
    listed: dict[str, list[str]], linked: tuple[str, str] | None
):
    uris = Uris()
    assert uris.link("b", "x://1") == "x://1"
    uris.compare(listed)

    assert uris.linked("x://1") == linked


def test_remembered_links_of_each_server_are_bounded():
    uris = Uris()
    uris.link("a", "x://first")
    assert uris.link("b", "y" * 5_000) == "y" * 5_000
    for number in range(MAX_LINKS + 1):
        uris.link("b", f"y://{number}")

    assert uris.linked("x://first") == ("a", "x://first")
    assert uris.linked("y" * 5_000) is None
    assert uris.linked("y://0") is None
    assert uris.linked(f"y://{MAX_LINKS}") is not None
