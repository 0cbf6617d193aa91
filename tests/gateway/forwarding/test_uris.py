"""URIs of several servers side by side."""

from __future__ import annotations

import pytest

from interlock.gateway.forwarding.uris import Uris


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


@pytest.mark.parametrize("server", ["a", "a/b", "ä %", "a%2Fb"])
def test_prefixed_uri_can_be_split_whatever_the_server_is_called(server: str):
    uris = Uris()
    uris.compare({server: ["x://1/2"], "other": ["x://1/2"]})

    assert uris.split(uris.shown(server, "x://1/2")) == (server, "x://1/2")
    assert uris.split("x://1/2") is None
    assert uris.split("interlock://servers/unknown/x://1") is None
