"""Files of API calls that name a resource of the same toolbox or gateway."""

from __future__ import annotations

import re
from base64 import b64encode
from typing import Any

import pytest

from interlock import Client, Server, Toolbox
from interlock.auth import Principal
from interlock.calls import Caller
from interlock.config.gateway import PolicyRules, Rule
from interlock.errors import InvalidArguments
from interlock.gateway import ForwardingServer
from interlock.layers.enforcement import CallDenied
from interlock.layers.kept_results import owner_of
from interlock.layers.results import ResultBudget
from interlock.openapi.bodies import MAX_FILE_BYTES
from interlock.openapi.server import OpenApiServer
from interlock.policy import Policy
from interlock.types import JsonObject
from tests.support.rows import each_row

BINARY: JsonObject = {"type": "string", "format": "binary"}
DOCUMENT: JsonObject = {
    "openapi": "3.1.0",
    "info": {"title": "T", "version": "1"},
    "paths": {
        "/photos": {
            "post": {
                "operationId": "addPhotos",
                "requestBody": {
                    "required": True,
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "properties": {
                                    "photo": BINARY,
                                    "more": {"type": "array", "items": BINARY},
                                    "note": {"type": "object"},
                                },
                            }
                        }
                    },
                },
            }
        },
        "/raw": {
            "put": {
                "operationId": "putRaw",
                "requestBody": {"content": {"application/octet-stream": {"schema": BINARY}}},
            }
        },
    },
}
ANN = Caller(Principal("user:ann", frozenset({"mcp:*"})), surface="mcp")
BOB = Caller(Principal("user:bob", frozenset({"mcp:*"})), surface="mcp")


class Recorder:
    """An API that keeps the last request."""

    def __init__(self) -> None:
        self.requests = 0
        self.headers: dict[str, str] = {}
        self.body = b""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for phase in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{phase}.complete"})
            return
        self.requests += 1
        self.headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.body = b""
        while (message := await receive())["type"] == "http.request":
            self.body += message.get("body", b"")
            if not message.get("more_body"):
                break
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def files() -> Server:
    server = Server("files")

    @server.resource("file:///cat.png", mime_type="image/png")
    def cat() -> bytes:
        return b"\x89PNG cat"

    @server.resource("file:///notes/{name}.txt", mime_type="text/plain")
    def note(name: str) -> str:
        return f"note {name}"

    @server.tool
    def report() -> str:
        return "line\n" * 20_000

    return server


@pytest.fixture
def app() -> Recorder:
    return Recorder()


@pytest.fixture
def servers(app: Recorder) -> dict[str, Any]:
    tools = {"add_photos": "addPhotos", "put_raw": "putRaw"}
    return {"shop": OpenApiServer(document=DOCUMENT, app=app, tools=tools), "files": files()}


async def test_file_that_names_a_listed_resource_is_sent_with_its_contents(
    app: Recorder, servers: dict[str, Any]
) -> None:
    async with Toolbox(servers) as toolbox:
        await toolbox.call("shop:put_raw", {"body": {"resource": "file:///cat.png"}})

    assert app.body == b"\x89PNG cat"
    assert app.headers["content-type"] == "image/png"


@pytest.mark.slow("waits for a timeout")
async def test_files_in_a_form_have_name_and_type_of_their_resources(
    app: Recorder, servers: dict[str, Any]
) -> None:
    async with Toolbox(servers) as toolbox:
        given = {
            "photo": {"resource": "files:file:///cat.png", "name": "tom.png"},
            "more": [{"resource": "file:///notes/a.txt"}, {"text": "own"}],
            "note": {"resource": "file:///cat.png"},
        }
        await toolbox.call("shop:add_photos", given)

    assert b'name="photo"; filename="tom.png"\r\nContent-Type: image/png\r\n\r\n\x89PNG' in app.body
    assert b'filename="a.txt"\r\nContent-Type: text/plain\r\n\r\nnote a\r\n' in app.body
    assert b"\r\n\r\nown\r\n" in app.body
    assert b'{"resource":"file:///cat.png"}' in app.body  # an object, and not a file


@each_row(
    ("uri", "sent"),
    [
        ("own:file:///notes/a.txt", b"note a"),  # another server lists the whole text
        ("other:file:///notes/a.txt", b"other"),
        ("own://page", b"page"),  # a URI whose scheme is a server's name
        ("file:///notes/b.txt", b"note b"),
        (
            "file:///notes/a.txt",
            "write own:file:///notes/a.txt or other:file:///notes/a.txt",
        ),
    ],
)
async def test_file_is_read_from_its_server_and_from_no_other(
    app: Recorder, uri: str, sent: bytes | str
) -> None:
    other = Server("other")
    other.resource("file:///notes/a.txt")(lambda: "other")
    other.resource("own:file:///notes/a.txt")(lambda: "forged")
    other.resource("own://page")(lambda: "page")
    shop = OpenApiServer(document=DOCUMENT, app=app, tools={"put_raw": "putRaw"})
    async with Toolbox({"shop": shop, "own": files(), "other": other}) as toolbox:
        calling = toolbox.call("shop:put_raw", {"body": {"resource": uri}})
        if isinstance(sent, str):
            with pytest.raises(InvalidArguments, match=re.escape(sent)):
                await calling
        else:
            await calling
            assert app.body == sent


async def test_kept_result_can_be_sent_as_a_file_by_its_owner_only(
    app: Recorder, servers: dict[str, Any]
) -> None:
    async with Toolbox(servers, results=ResultBudget()) as toolbox:
        result = await toolbox.call("files:report", caller=ANN)
        assert result.meta is not None
        id = result.meta["interlock/result"]["id"]
        uri = f"interlock://results/{id}/1"
        await toolbox.call("shop:put_raw", {"body": {"resource": uri}}, caller=ANN)
        sent = app.body
        await toolbox.call("shop:put_raw", {"body": {"resource": id}}, caller=ANN)
        assert app.body == sent
        with pytest.raises(InvalidArguments, match="may have expired"):
            await toolbox.call("shop:put_raw", {"body": {"resource": uri}}, caller=BOB)

    assert sent == b"line\n" * 20_000
    assert app.requests == 2


@pytest.mark.parametrize(
    ("uri", "problem"),
    [
        ("file:///dog.png", "no resource 'file:///dog.png'; write the URI of a listed resource"),
        ("https://example.com/x", "no resource"),
        ("interlock://results/r_unknown", "may have expired"),
    ],
)
async def test_file_argument_with_an_unusable_resource_is_refused_before_the_request(
    app: Recorder, servers: dict[str, Any], uri: str, problem: str
) -> None:
    async with Toolbox(servers) as toolbox:
        with pytest.raises(InvalidArguments, match=problem):
            await toolbox.call("shop:put_raw", {"body": {"resource": uri}})

    assert app.requests == 0


@pytest.mark.slow("sends 16 MiB")
async def test_file_that_names_a_resource_may_have_16_mib_and_no_more(
    app: Recorder, servers: dict[str, Any]
) -> None:
    async with Toolbox(servers) as toolbox:
        store = toolbox.results.store
        for size in (MAX_FILE_BYTES, MAX_FILE_BYTES + 1):
            text = "a" * size
            content = b'{"content":[{"type":"text","text":"%b"}]}' % text.encode()
            kept = await store.keep(owner_of(None), "c_1", content)
            given = {"body": {"resource": f"interlock://results/{kept.id}"}}
            if size > MAX_FILE_BYTES:
                with pytest.raises(InvalidArguments, match="is too large for a file"):
                    await toolbox.call("shop:put_raw", given)
            else:
                await toolbox.call("shop:put_raw", given)

    assert len(app.body) == MAX_FILE_BYTES
    assert app.requests == 1


async def test_file_beside_a_second_source_is_refused(
    app: Recorder, servers: dict[str, Any]
) -> None:
    both = {"resource": "file:///cat.png", "base64": b64encode(b"x").decode()}
    async with Toolbox(servers) as toolbox:
        result = await toolbox.call("shop:put_raw", {"body": both})

    assert "exactly one of" in result.text
    assert app.requests == 0


async def test_gateway_reads_a_resource_for_a_file_only_if_its_caller_may(
    app: Recorder, servers: dict[str, Any]
) -> None:
    def allow(id: str, who: str, kind: str, pattern: str) -> Rule:
        return Rule(id=id, effect="allow", who=(who,), kind=kind, patterns=(pattern,))  # type: ignore[arg-type]

    rules = (
        allow("tools", "*", "tools", "shop:*"),
        allow("files", "user:ann", "resources", "files:*"),
    )
    gateway = ForwardingServer(servers, Policy.compile(PolicyRules(rules=rules)))
    given = {"body": {"resource": "file:///cat.png"}}
    async with gateway.running():
        linked = {"body": {"resource": "files:file:///notes/a.txt"}}
        for each in (given, linked):
            with pytest.raises((CallDenied, InvalidArguments)):
                await gateway.toolbox.call("shop:put_raw", each, caller=BOB)
        assert app.requests == 0
        await gateway.toolbox.call("shop:put_raw", given, caller=ANN)
        assert app.body == b"\x89PNG cat"
        await gateway.toolbox.call("shop:put_raw", linked, caller=ANN)

    assert app.body == b"note a"


async def test_api_without_a_toolbox_refuses_a_file_that_names_a_resource(
    app: Recorder, servers: dict[str, Any]
) -> None:
    async with Client.memory(servers["shop"]) as client:
        result = await client.call_tool("put_raw", {"body": {"resource": "file:///cat.png"}})

    assert "there are no resources here" in result.text
    assert app.requests == 0
