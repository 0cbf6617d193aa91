"""Which requests to the pages are refused before anything else is done."""

from __future__ import annotations

from typing import Any

from interlock.server.http.page_guard import PageGuard
from interlock.server.http.proxies import BEHIND_PROXY, HOST
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal
from tests.support.rows import each_row

LOCAL = "127.0.0.1:8080"
PUBLIC = "tools.example.com"


async def status(
    guard: PageGuard, method: str = "GET", scope: dict[str, Any] | None = None, **headers: str
) -> int:
    """Return 200, or the status of the refusal."""
    pairs = [(name.replace("_", "-").encode(), each.encode()) for name, each in headers.items()]
    whole: dict[str, Any] = {
        "type": "http",
        "method": method,
        "path": "/",
        "headers": pairs,
        "server": ("127.0.0.1", 8080),
        **(scope or {}),
    }
    try:
        guard.check(HttpRequest(whole, None, None))  # type: ignore[arg-type]
    except HttpRefusal as refusal:
        return refusal.status
    return 200


@each_row(
    ("host", "origin", "expected"),
    [
        (LOCAL, "http://127.0.0.1:8080", 200),
        ("localhost:8080", "http://localhost:8080", 200),
        (LOCAL, "http://127.0.0.1:9999", 403),
        (LOCAL, "http://localhost:8080", 403),
        (LOCAL, "http://127.0.0.1", 403),
        (LOCAL, "file://127.0.0.1:8080", 403),
        (LOCAL, "null", 403),
        (LOCAL, "", 403),
        ("evil.example", "http://evil.example", 403),
        ("127.0.0.1.nip.io:8080", "http://127.0.0.1.nip.io:8080", 403),
    ],
)
async def test_only_pages_of_the_same_host_and_port_are_served_locally(host, origin, expected):
    assert await status(PageGuard(), host=host, origin=origin) == expected


@each_row(
    ("stated", "origin", "hosts", "expected"),
    [
        (PUBLIC, "https://tools.example.com", None, 200),
        (PUBLIC, "https://tools.example.com", [PUBLIC, "127.0.0.1"], 200),
        (PUBLIC, "https://tools.example.com", ["other.example", "127.0.0.1"], 403),
        (PUBLIC, "http://tools.example.com", None, 403),  # the proxy states https
        (PUBLIC, "https://evil.example", None, 403),
        ("", "https://tools.example.com", None, 403),
        ("", "http://localhost:8080", None, 403),  # a page on the machine of the client
    ],
)
async def test_pages_of_the_host_that_a_trusted_proxy_states_are_served(
    stated, origin, hosts, expected
):
    guard = PageGuard(hosts)
    more = {HOST: stated, "scheme": "https", "server": (BEHIND_PROXY, 8080)}

    assert await status(guard, scope=more, host=LOCAL, origin=origin) == expected


@each_row(
    ("host", "origin", "expected"),
    [
        (PUBLIC, "https://tools.example.com", 200),
        (PUBLIC, "http://tools.example.com", 403),  # somebody on the network could write it
        (PUBLIC, "https://other.example.com", 403),
        (LOCAL, "http://127.0.0.1:8080", 200),  # the operator on the same machine
        (LOCAL, "https://tools.example.com", 200),  # a proxy that changes Host
    ],
)
async def test_only_pages_of_the_public_url_are_served_behind_a_proxy(host, origin, expected):
    guard = PageGuard([PUBLIC, "127.0.0.1"], "https://tools.example.com/mcp")
    assert await status(guard, host=host, origin=origin) == expected


async def test_requests_of_other_sites_are_refused():
    for site, get, post in (
        ("same-origin", 200, 200),
        ("none", 200, 403),
        ("same-site", 403, 403),
        ("cross-site", 403, 403),
    ):
        json = "application/json"
        assert await status(PageGuard(), host=LOCAL, sec_fetch_site=site) == get
        found = await status(
            PageGuard(), "POST", host=LOCAL, sec_fetch_site=site, content_type=json
        )
        assert found == post, site


async def test_page_session_needs_an_origin_header_to_change_something():
    plain, origin = {"host": LOCAL, "content_type": "application/json"}, "http://127.0.0.1:8080"
    for session in ({"x_interlock_key": "k"}, {"cookie": "interlock=x"}):
        given = plain | session
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert await status(PageGuard(), method, **given) == 403
            assert await status(PageGuard(), method, **given, origin=origin) == 200
        assert await status(PageGuard(), "GET", **given) == 200
    assert await status(PageGuard(), "POST", **plain) == 200
