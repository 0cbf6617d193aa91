"""The order in which a modern request is checked, and what each refusal looks like."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock import Context
from interlock.auth.principal import Principal
from interlock.errors import AuthRequired, ConfigError
from tests.support.rows import each_row

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META = {VERSION: "2026-07-28", CAPABILITIES: {}}


@each_row("method", ["GET", "DELETE", "PUT", "HEAD", "OPTIONS"])
async def test_methods_other_than_post_are_refused(http, method):
    reply = await http.request(method, headers={"mcp-protocol-version": "2026-07-28"})

    assert (reply.code, reply.header("allow")) == (405, "POST")


@each_row(
    ("body", "code"),
    [
        (b"", -32700),
        (b"{", -32700),
        (b"\xff{}", -32700),
        (b'\xef\xbb\xbf\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"server/discover"}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"x":NaN}}', -32700),
        (b"[" * 100_000, -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b"[" * 99 + b"]" * 99 + b"}", -32600),
        (b"7", -32600),
        (b"[]", -32600),
        (b'[{"jsonrpc":"2.0","id":1,"method":"server/discover"}]', -32600),
        (b'{"jsonrpc":"1.0","id":1,"method":"server/discover"}', -32600),
        (b'{"id":1,"method":"server/discover"}', -32600),
        (b'{"jsonrpc":"2.0","id":null,"method":"server/discover"}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"method":"server/discover"}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"server/discover"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"server/discover"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":"server/discover","Method":"tools/call"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600),
    ],
)
async def test_message_that_is_not_a_request_is_refused_without_an_id(http, body, code):
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover"}
    reply = await http.request("POST", body=body, headers=headers)

    assert (reply.code, reply.error) == (400, code)
    assert "id" not in reply.json


async def test_notification_gets_an_empty_202(http):
    body = http.rpc("notifications/whatever", {"_meta": META})
    reply = await http.request("POST", body=body)

    assert (reply.code, reply.body) == (202, b"")


async def test_a_notification_of_an_unknown_revision_is_refused(http):
    body = http.rpc("notifications/whatever", {"_meta": {VERSION: "v999"}})
    reply = await http.request("POST", body=body)

    assert (reply.code, reply.error) == (400, -32022)


@each_row(
    ("params", "missing"),
    [
        (None, [VERSION, CAPABILITIES]),
        ({}, [VERSION, CAPABILITIES]),
        ({"_meta": {}}, [VERSION, CAPABILITIES]),
        ({"_meta": {VERSION: "2026-07-28"}}, [CAPABILITIES]),
        ({"_meta": {CAPABILITIES: {}}}, [VERSION]),
        ({"_meta": {VERSION: 7, CAPABILITIES: []}}, [VERSION, CAPABILITIES]),
    ],
)
async def test_missing_metadata_is_named(http, params, missing):
    body = http.rpc("server/discover", params, id="x")
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover"}
    reply = await http.request("POST", body=body, headers=headers)

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32602, "x")
    assert all(key in reply.json["error"]["message"] for key in missing)


@each_row("params", [[], {"_meta": []}, {"_meta": "text"}])
async def test_params_of_a_wrong_shape_are_refused_with_the_id(http, params):
    body = http.rpc("server/discover", params, id=7)
    headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "server/discover"}
    reply = await http.request("POST", body=body, headers=headers)

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32602, 7)


@each_row(
    "headers",
    [
        {"mcp-protocol-version": "-"},
        {"mcp-protocol-version": "2025-11-25"},
        {"mcp-protocol-version": "v999"},
        {"mcp-method": "-"},
        {"mcp-method": "TOOLS/CALL"},
        {"mcp-method": "tools/list"},
        {"mcp-name": "-"},
        {"mcp-name": "Add"},
        {"mcp-name": "=?base64?YWRk"},
        {"mcp-name": "=?base64?YWR?="},
        {"mcp-name": "=?base64?Y WRk?="},
        {"mcp-name": "=?BASE64?YWRk?="},
        {"mcp-name": "=?base64?/w==?="},
        {"mcp-name": "=?base64?YWRl?="},
    ],
)
async def test_headers_must_agree_with_the_body(http, headers):
    reply = await http.call("add", {"a": 1}, headers=headers)

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32020, 1)


async def test_name_that_looks_like_base64_must_be_encoded(http):
    # As it is, it would be read as "add" by whoever routes by headers.
    reply = await http.call("=?base64?YWRk?=", {"a": 1})

    assert (reply.code, reply.error) == (400, -32020)


async def test_a_name_beyond_ascii_must_be_encoded(http):
    # Whoever routes by headers may read its bytes in another way.
    raw = "Zürich".encode().decode("latin-1")
    reply = await http.call("Zürich", headers={"mcp-name": raw})
    assert (reply.code, reply.error) == (400, -32020)

    reply = await http.call("Zürich", headers={"mcp-name": "=?base64?WsO8cmljaA==?="})
    assert (reply.code, reply.error) == (200, -32602)


@each_row(
    "headers",
    [
        {"mcp-protocol-version": " 2026-07-28\t"},
        {"mcp-method": "\ttools/call "},
        {"mcp-name": "=?base64?YWRk?="},
        {"mcp-session-id": "ignored", "last-event-id": "ignored"},
    ],
)
async def test_blanks_around_values_and_base64_are_read(http, headers):
    reply = await http.call("add", {"a": 1}, headers=headers)

    assert (reply.code, reply.text) == (200, "2")


@each_row("name", ["mcp-protocol-version", "mcp-method", "mcp-name", "Mcp-Param-X"])
async def test_a_routing_header_given_twice_is_refused(http, name):
    values = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}
    again = (name.lower(), values.get(name, "x"))
    repeated = [again, again] if name == "Mcp-Param-X" else [again]
    reply = await http.call("add", {"a": 1}, repeated=repeated)

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32020, 1)


async def test_unknown_revision_gets_the_supported_revisions(http):
    meta = {VERSION: "v999.0.0"}
    headers = {"mcp-protocol-version": "v999.0.0"}
    reply = await http.ask("server/discover", meta=meta, headers=headers)

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32022, 1)
    told = reply.json["error"]["data"]
    assert told == {"supported": ["2026-07-28"], "requested": "v999.0.0"}


@each_row(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "unknown/method",
    ],
)
async def test_removed_method_is_unknown(http, method):
    reply = await http.ask(method)

    assert (reply.code, reply.error, reply.json["id"]) == (404, -32601, 1)
    assert reply.header("mcp-session-id") is None


async def test_several_faults_are_reported_in_a_fixed_order(http):
    """Each line mends the first fault of the line before."""
    good = {"mcp-protocol-version": "v999", "mcp-method": "no/method"}
    lacking = {VERSION: "v999", CAPABILITIES: None}
    unknown = {VERSION: "v999"}

    async def code(meta, headers):
        return (await http.ask("no/method", meta=meta, headers=headers)).error

    assert await code(lacking, {"mcp-method": "-"}) == -32602
    assert await code(unknown, {"mcp-method": "-"}) == -32020
    assert await code(unknown, good | {"mcp-method": "-"}) == -32020
    assert await code(unknown, good) == -32022
    assert await code({}, {}) == -32601


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/call", {"name": "add", "arguments": {}, "inputResponses": None}),
        ("tools/call", {"name": "add", "arguments": {}, "requestState": [7]}),
        ("prompts/get", {"name": "greet", "arguments": {"name": 7}}),
        ("completion/complete", {"ref": {"type": "ref/other"}}),
        ("subscriptions/listen", {"notifications": 7}),
    ],
)
async def test_params_of_another_method_are_refused(server, http, method, params):
    @server.completion("greet", "name")
    async def names(typed: str) -> list[str]:
        return []

    reply = await http.ask(method, params)
    assert (reply.code, reply.error, reply.json["id"]) == (400, -32602, 1)


async def test_a_wrong_log_level_is_refused(http):
    reply = await http.call("add", {"a": 1}, meta={"io.modelcontextprotocol/logLevel": "loud"})

    assert (reply.code, reply.error) == (400, -32602)


async def test_missing_capability_is_named_as_an_object(http):
    reply = await http.call("sample")

    assert (reply.code, reply.error, reply.json["id"]) == (400, -32021, 1)
    assert reply.json["error"]["data"] == {"requiredCapabilities": {"sampling": {}}}


async def test_an_unknown_tool_is_an_answer_not_a_refusal(http):
    reply = await http.call("nothing")

    assert (reply.code, reply.error) == (200, -32602)


async def test_exception_of_a_tool_is_not_sent(http, caplog):
    reply = await http.call("fail")

    assert reply.json["result"]["isError"]
    assert b"hunter2" not in reply.body


# Eras


async def test_both_eras_are_served_on_one_path(http):
    client = await http.initialize()
    modern = await http.call("add", {"a": 1}, id=7)
    legacy = await client.call("add", {"a": 2}, id=7)
    again = await http.call("add", {"a": 3}, id=7)

    assert [reply.text for reply in (modern, legacy, again)] == ["2", "3", "4"]
    assert "resultType" in modern.json["result"]
    assert "resultType" not in legacy.json["result"]


async def test_era_of_a_request_is_detected_from_the_body(http):
    client = await http.initialize()
    reply = await http.call("add", {"a": 1}, headers={"mcp-session-id": client.id})

    assert "resultType" in reply.json["result"]


@each_row(
    ("body", "meta", "code", "id"),
    [
        ("tools/list", {}, -32600, 1),
        ("notifications/whatever", {}, -32600, None),
        ("tools/list", {VERSION: "2026-07-28", CAPABILITIES: {}}, -32020, 1),
        ("", {}, -32600, None),  # a batch
    ],
)
async def test_header_with_an_unknown_revision_is_named_with_its_value(http, body, meta, code, id):
    client = await http.initialize()
    written = http.rpc(body, {"_meta": meta}, **({} if id is None else {"id": id}))
    headers = {"mcp-session-id": client.id, "mcp-protocol-version": "v999"}
    for version in ("v999", ""):
        headers["mcp-protocol-version"] = version
        reply = await http.request("POST", body=written if body else b"[]", headers=headers)

        assert (reply.code, reply.error, reply.json.get("id")) == (400, code, id)
        known = "2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25, 2026-07-28"
        assert reply.json["error"]["message"] == (
            f"header MCP-Protocol-Version is {version!r}, which is none of {known}"
        )
    headers["mcp-protocol-version"] = "2026-07-28"  # known, so the body lacks its metadata
    reply = await http.request("POST", body=http.rpc("tools/list", id=1), headers=headers)
    assert (reply.error, VERSION in reply.json["error"]["message"]) == (-32602, True)


async def test_header_mcp_method_does_not_decide_the_era(http):
    body = http.rpc("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}}, id=1)
    params = json.loads(body)["params"] | {"clientInfo": {"name": "x", "version": "1"}}
    body = http.rpc("initialize", params, id=1)
    reply = await http.request("POST", body=body, headers={"mcp-method": "initialize"})

    assert reply.code == 200
    assert reply.json["result"]["protocolVersion"] == "2025-06-18"


async def test_initialize_never_agrees_on_a_modern_revision(http):
    params = {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    body = http.rpc("initialize", params | {"protocolVersion": "2026-07-28"}, id=1)
    reply = await http.request("POST", body=body)

    assert reply.json["result"]["protocolVersion"] == "2025-11-25"


# The headers of a request


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_function_reads_the_headers_without_credentials(server, http, era):
    seen = []

    @server.tool
    async def read(context: Context) -> str:
        seen.append(dict(context.headers))
        with pytest.raises(TypeError):
            context.headers["x"] = "y"
        return context.headers.get("x-tenant", "none")

    secrets = dict.fromkeys(("authorization", "cookie", "x-api-key"), "secret")
    headers = {"X-Tenant": "acme", "proxy-authorization": "secret", **secrets}
    headers = {name.lower(): value for name, value in headers.items()}
    if era == "modern":
        repeated = [("x-tenant", "other")]
        reply = await http.call("read", headers=headers, repeated=repeated)
        assert reply.text == "acme, other"
    else:
        client = await http.initialize(headers=headers)
        assert (await client.call("read")).text == "acme"
    assert "secret" not in seen[0].values()
    assert seen[0]["accept"]


# The health check


class NobodyMayCall:
    challenge = "Bearer"

    def published(self, path: str) -> bytes | None:
        return None

    async def authenticate(self, headers: Any, peer: str | None) -> Principal:
        raise AuthRequired("no credential is valid", 401)


async def test_the_health_check_answers_once_the_server_is_open(make):
    http = make(health="/healthz", auth=NobodyMayCall())
    for method in ("GET", "HEAD"):
        reply = await http.request(method, "/healthz", headers={"host": "10.0.0.7:8000"})
        assert (reply.code, reply.body) == (200, b'{"status":"ok"}')
    assert (await http.request("POST", "/healthz")).code == 404
    assert (await http.request("GET", "/mcp")).code == 401
    http.app.drain()
    assert (await http.request("GET", "/healthz")).code == 503


def test_the_health_check_has_a_path_of_its_own(server):
    with pytest.raises(ConfigError, match="health='/mcp' is the path of the endpoint"):
        server.asgi(health="/mcp")
