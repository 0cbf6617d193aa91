"""HTTP requests to an API: sent once, their answers cut at the limit."""

from __future__ import annotations

from interlock.openapi.exchange import joined


def test_headers_that_are_repeated_are_joined_whatever_their_case() -> None:
    assert joined([("Link", "<a>"), ("ETag", "1"), ("LINK", "<b>")]) == {
        "link": "<a>, <b>",
        "etag": "1",
    }
