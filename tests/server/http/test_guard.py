"""Who may reach the endpoint, and what a request may bring."""

from __future__ import annotations

from interlock.server.http import guard
from tests.support.rows import each_row

ROUTES = [
    ("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("OPTIONS", "/mcp"),
    ("GET", "/sse"), ("POST", "/messages"), ("GET", "/elsewhere"),
]  # fmt: skip
LOCAL = ["127.0.0.1:8000", "localhost", "LOCALHOST:1", "[::1]", "[::1]:8000", "127.0.0.1"]
FOREIGN = [
    "-", "", "evil.example.com", "evil.example.com:8000", "localhost.evil.com",
    "127.0.0.1.nip.io", "localhost:8000@evil.com", "localhost.", "evil.com:localhost", "::1",
    "[::1].evil.com", "0.0.0.0", "localhost/health?x=", "xlocalhost", "127.0.0.1:80:80",
]  # fmt: skip


@each_row("host", LOCAL)
async def test_names_of_loopback_are_served_on_loopback(http, host):
    assert (await http.call("add", {"a": 1}, headers={"host": host})).code == 200


@each_row("host", FOREIGN)
async def test_unknown_host_names_are_refused_on_loopback(http, host):
    reply = await http.call("add", {"a": 1}, headers={"host": host})

    assert reply.code == 403
    assert "hosts=" in reply.json["error"]["message"]


@each_row(("method", "path"), ROUTES)
async def test_every_route_is_guarded_before_anything_else(make, method, path):
    async def nobody(token):
        raise AssertionError("asked for a token too early")

    http = make(sse=True, verify_token=nobody, resource="http://127.0.0.1/mcp")
    for headers in ({"host": "evil.example.com"}, {"origin": "http://evil.example.com"}):
        reply = await http.request(method, path, headers=headers)
        assert reply.code == 403
    reply = await http.request(method, path, repeated=[("host", "evil.example.com")])
    assert reply.code == 400


@each_row(
    "origin", ["http://localhost", "http://127.0.0.1:3000", "https://[::1]:1", "HTTP://LOCALHOST"]
)
async def test_origins_of_loopback_are_allowed_on_loopback(http, origin):
    assert (await http.call("add", {"a": 1}, headers={"origin": origin})).code == 200


@each_row(
    "origin",
    [
        "null", "", "http://evil.example.com", "http://localhost.evil.com", "file://", "localhost",
        "http://127.0.0.1.nip.io", "http://localhost@evil.com", "ftp://localhost",
        "http://localhost/path", "http://[::1", "http://evil.com#localhost",
    ],
)  # fmt: skip
async def test_origins_that_are_not_loopback_are_refused_on_loopback(http, origin):
    assert (await http.call("add", {"a": 1}, headers={"origin": origin})).code == 403


async def test_public_address_serves_any_host_unless_hosts_are_listed(make):
    http = make(address="192.0.2.1")
    assert (await http.call("add", {"a": 1}, headers={"host": "any.example.com"})).code == 200

    http = make(address="192.0.2.1", hosts=["api.example.com", "other.example.com:8443"])
    for host, code in [
        ("api.example.com", 200),
        ("API.example.com:443", 200),
        ("other.example.com:8443", 200),
        ("other.example.com", 403),
        ("localhost", 403),
        ("api.example.com.evil.com", 403),
    ]:
        assert (await http.call("add", {"a": 1}, headers={"host": host})).code == code


async def test_public_address_refuses_origins_unless_listed(make):
    headers = {"host": "api.example.com", "origin": "https://app.example.com"}
    http = make(address="192.0.2.1")
    assert (await http.call("add", {"a": 1}, headers=headers)).code == 403
    local = {"host": "localhost", "origin": "http://localhost"}
    assert (await http.call("add", {"a": 1}, headers=local)).code == 403

    http = make(address="192.0.2.1", origins=["https://app.example.com"])
    assert (await http.call("add", {"a": 1}, headers=headers)).code == 200
    headers["origin"] = "https://app.example.com:444"
    assert (await http.call("add", {"a": 1}, headers=headers)).code == 403


async def test_listed_hosts_are_served_behind_a_proxy_on_loopback(make):
    http = make(hosts=["api.example.com"])

    assert (await http.call("add", {"a": 1}, headers={"host": "api.example.com"})).code == 200
    assert (await http.call("add", {"a": 1}, headers={"host": "evil.com"})).code == 403


async def test_host_allowed_at_one_address_is_still_checked_on_loopback(make):
    http = make(address="192.0.2.1")
    host = {"host": "evil.example.com"}
    assert (await http.call("add", {"a": 1}, headers=host)).code == 200
    http.address = "127.0.0.1"

    assert (await http.call("add", {"a": 1}, headers=host)).code == 403


async def test_allowed_hosts_are_cached_up_to_a_limit(make):
    http = make(hosts=["*"])
    for number in range(guard._MAX_CACHED + 10):
        await http.request("GET", "/elsewhere", headers={"host": f"host-{number}"})

    assert 0 < len(http.app._guard.allowed) <= guard._MAX_CACHED


# Pages that may read


async def test_pages_cannot_read_replies_by_default(http):
    reply = await http.call("add", {"a": 1}, headers={"origin": "http://localhost"})

    assert reply.header("access-control-allow-origin") is None
    assert (await http.request("OPTIONS")).code == 405


async def test_listed_cors_origins_may_read_replies(make):
    http = make(cors=["https://app.example.com"])
    origin = {"origin": "https://app.example.com"}
    reply = await http.call("add", {"a": 1}, headers=origin)
    assert reply.header("access-control-allow-origin") == "https://app.example.com"
    assert "Mcp-Session-Id" in (reply.header("access-control-expose-headers") or "")
    assert reply.header("vary") == "Origin"

    failed = await http.call("add", {"a": 1}, headers=origin | {"mcp-method": "x"})
    assert failed.header("access-control-allow-origin") == "https://app.example.com"
    stream = await http.call("count", headers=origin, meta={"progressToken": 1})
    assert stream.header("access-control-allow-origin") == "https://app.example.com"
    assert (await http.call("add", headers={"origin": "https://evil.com"})).code == 403


async def test_allowed_origins_alone_cannot_read_replies(make):
    http = make(origins=["https://other.example.com"], cors=["https://app.example.com"])
    reply = await http.call("add", {"a": 1}, headers={"origin": "https://other.example.com"})

    assert reply.code == 200
    assert reply.header("access-control-allow-origin") is None


async def test_cors_preflight_names_methods_and_headers(make):
    http = make(cors=["https://app.example.com"], caller_headers=["x-tenant"])
    headers = {
        "origin": "https://app.example.com",
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type, x-api-key, mcp-param-region, x-evil",
    }
    reply = await http.request("OPTIONS", headers=headers)

    assert reply.code == 204
    assert reply.header("access-control-allow-methods") == "GET, POST, DELETE"
    allowed = (reply.header("access-control-allow-headers") or "").lower().split(", ")
    sent = {"authorization", "x-api-key", "content-type", "accept", "mcp-protocol-version"}
    sent |= {
        "x-tenant",
        "mcp-session-id",
        "mcp-method",
        "mcp-name",
        "last-event-id",
        "mcp-param-region",
    }
    assert sent <= set(allowed)
    assert "x-evil" not in allowed


async def test_cors_preflight_needs_no_token(make):
    async def verify(token):
        return None

    http = make(
        cors=["https://app.example.com"], verify_token=verify, resource="http://127.0.0.1/mcp"
    )
    headers = {"origin": "https://app.example.com", "access-control-request-method": "POST"}
    foreign = headers | {"origin": "https://evil.com"}
    metadata = "/.well-known/oauth-protected-resource/mcp"
    for path, sent, code in (
        ("/mcp", headers, 204),
        ("/mcp", foreign, 403),
        (metadata, headers, 204),
        (metadata, foreign, 204),  # what is published, the pages of any origin may read
    ):
        assert (await http.request("OPTIONS", path, headers=sent)).code == code, path
    assert (await http.request("OPTIONS", "/elsewhere", headers=headers)).code == 404
    reply = await http.call("add", headers={"origin": "https://app.example.com"})
    assert reply.code == 401
    assert reply.header("access-control-allow-origin") == "https://app.example.com"
