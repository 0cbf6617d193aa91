"""Views: named parts of an endpoint, at paths below it."""

from __future__ import annotations

import pytest

from interlock.auth import BearerAuth, Principal, static_tokens
from interlock.server.http.responses import HttpRefusal
from interlock.server.http.views import ServedPath, Views
from tests.support.rows import each_row

TOKENS = static_tokens({"token-of-anna-0123": Principal("anna")})


def views() -> Views:
    return Views(
        ["support"],
        lambda view: BearerAuth(verify=TOKENS, resource=f"https://a.example/mcp/{view}"),
    )


@each_row(
    ("below", "route"),
    [
        (b"support", ServedPath("mcp", "/mcp/support/message", "support")),
        (b"unknown", ServedPath("mcp", "/mcp/unknown/message", "unknown")),
        (b"support/sse", ServedPath("sse", "/mcp/support/message", "support")),
        (b"support/message", ServedPath("messages", "/mcp/support/message", "support")),
        (b"support/messages", ServedPath("messages", "/mcp/support/message", "support")),
    ],
)
def test_a_path_below_the_endpoint_has_a_route_whether_its_view_exists_or_not(
    below: bytes, route: ServedPath
):
    assert views().route("/mcp", below) == route


@each_row(
    "below",
    [
        b"",
        b"sse",
        b"message",
        b"messages",
        b"../x",
        b"%2e",
        b"-a",
        b"a" * 65,
        b"a/b",
        b"a/sse/",
        b"a\n",
    ],
)
def test_a_path_that_names_no_view_has_no_route(below: bytes):
    assert views().route("/mcp", below) is None


def test_an_unknown_view_is_refused_like_any_unknown_path():
    views().check("support")
    with pytest.raises(HttpRefusal) as refused:
        views().check("unknown")

    assert refused.value.status == 404
    assert "unknown" not in str(refused.value)


def test_metadata_of_a_view_is_published_at_its_own_path_only():
    document = views().published(b"/.well-known/oauth-protected-resource/mcp/support")

    assert document is not None
    assert b"https://a.example/mcp/support" in document
    assert views().published(b"/.well-known/oauth-protected-resource/other/support") is None
    assert views().published(b"/mcp/support") is None
