"""`interlock openapi`, and the requests that `interlock call --dry-run` prints."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import Toolbox, config
from interlock.config.gateway import Lock
from interlock.gateway.definitions.pinning import Pinning
from interlock.store.database.database import open_database
from interlock.store.pins import PinStore
from tests.openapi.scripted_api import http, scripted_api

DOCUMENT: dict[str, Any] = {
    "openapi": "3.1.0",
    "info": {"title": "My Shop", "version": "1"},
    "servers": [{"url": "https://shop.example/v1/"}],
    "security": [{"Key": []}],
    "components": {
        "securitySchemes": {"Key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
    },
    "paths": {
        "/orders/{id}": {
            "get": {
                "operationId": "getOrder",
                "summary": "An order",
                "tags": ["orders"],
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "integer"}},
                    {"name": "page[size]", "in": "query", "schema": {"type": "integer"}},
                ],
            },
        },
        "/photos": {
            "post": {
                "requestBody": {
                    "required": True,
                    "content": {
                        "multipart/form-data": {
                            "schema": {
                                "type": "object",
                                "properties": {"photo": {"type": "string", "format": "binary"}},
                            }
                        }
                    },
                }
            }
        },
        "/admin/tokens": {"get": {"operationId": "listTokens"}},
    },
}
TOOLS = {"get_order": "getOrder", "add_photo": "POST /photos", "tokens": "listTokens"}


@pytest.fixture
def document(home: Path) -> Path:
    path = home / "shop.json"
    path.write_text(json.dumps(DOCUMENT))
    return path


@pytest.fixture
def shop(document: Path, servers: Callable[..., Path]) -> Path:
    openapi = {
        "document": str(document),
        "baseUrl": "https://shop.example/v1",
        "auth": {"Key": "canary-of-the-shop"},
        "tools": TOOLS,
    }
    return servers(shop={"openapi": openapi, "headers": {"X-App": "short"}})


def test_list_shows_the_operations_of_a_document_with_id_and_credentials(interlock, document):
    ran = interlock("openapi", "list", document, "--search", "order")

    assert ran.out == "GET /orders/{id}  getOrder  An order  Key\n"


def test_list_filters_by_method_and_tag(interlock, document):
    by_method = interlock("openapi", "list", document, "--method", "post", "--json").json
    by_tag = interlock("openapi", "list", document, "--tag", "orders", "--json").json

    assert [each["operation"] for each in by_method["operations"]] == ["POST /photos"]
    assert [each["operation"] for each in by_tag["operations"]] == ["GET /orders/{id}"]


def test_list_of_a_server_maps_each_argument_to_its_place(interlock, shop):
    tools = interlock("openapi", "list", "shop", "--json").json["tools"]

    assert tools[0] == {
        "tool": "get_order",
        "operation": "getOrder",
        "method": "GET",
        "path": "/orders/{id}",
        "arguments": {
            "id": {"in": "path", "name": "id"},
            "page_size": {"in": "query", "name": "page[size]"},
        },
    }


def test_init_prints_an_entry_that_the_configuration_accepts(interlock, document, home):
    ran = interlock("openapi", "init", "shop.json")
    entry = ran.json["mcpServers"]["my_shop"]["openapi"]
    (home / "mcp.json").write_text(ran.out)
    listed = interlock("openapi", "list", "my_shop", "--config", "mcp.json", "--json")

    assert entry == {
        "document": "shop.json",
        "baseUrl": "https://shop.example/v1",
        "auth": {"Key": "${MY_SHOP_KEY}"},
        "tools": {"get_order": "getOrder"},
    }
    assert "left out: GET /admin/tokens" in ran.err
    assert "MY_SHOP_KEY" in listed.err


def test_init_leaves_deprecated_operations_out_and_names_the_tags(interlock, document):
    root = json.loads(json.dumps(DOCUMENT))
    root["paths"]["/orders/{id}"]["get"]["deprecated"] = True
    document.write_text(json.dumps(root))
    ran = interlock("openapi", "init", document)
    unknown = interlock("openapi", "init", document, "--tag", "order")

    assert ran.json["mcpServers"]["my_shop"]["openapi"]["tools"] == {}
    assert "left out: GET /orders/{id}: it is deprecated" in ran.err
    assert unknown.code == 2
    assert "no operation has the tag 'order'; tags: orders" in unknown.err


def test_init_with_write_offers_the_operations_that_change_something(interlock, document):
    entry = interlock("openapi", "init", document, "--write").json["mcpServers"]["my_shop"]

    assert entry["openapi"]["tools"]["post_photos"] == "POST /photos"


def test_check_warns_of_delicate_operations_and_fails_for_a_missing_tool(
    interlock, document, servers
):
    servers(
        shop={
            "openapi": {
                "document": str(document),
                "baseUrl": "https://shop.example",
                "tools": TOOLS | {"other": "getOrdr"},
            }
        }
    )
    ran = interlock("openapi", "check", "shop", "--json")
    found = {(each["level"], each["tool"]): each["text"] for each in ran.json["findings"]}

    assert ran.code == 1
    assert "did you mean getOrder" in found["error", "other"]
    assert "no credential for 'Key'" in found["warning", "get_order"]
    assert any("admin" in each["text"] for each in ran.json["findings"])


@pytest.mark.slow("starts a program")
def test_check_shows_how_earlier_answers_differ_from_the_document(interlock, home, servers):
    document = home / "shop.json"
    count = {"type": "object", "properties": {"count": {"type": "integer"}}}
    answer = {"200": {"description": "", "content": {"application/json": {"schema": count}}}}
    operation = {"operationId": "getStock", "responses": answer}
    root = {**DOCUMENT, "paths": {"/stock": {"get": operation}}, "security": []}
    document.write_text(json.dumps(root))

    async def call_twice() -> None:
        async with scripted_api() as api:
            api.answers = [http(200, b'{"count":"canary"}', Content_Type="application/json")]
            tools = {"get_stock": "getStock"}
            settings = {"document": str(document), "baseUrl": api.url, "tools": tools}
            file = servers(shop={"openapi": settings})
            for _ in range(2):
                async with Toolbox.from_config(file) as toolbox:
                    await toolbox.call("shop:get_stock")

    asyncio.run(call_twice())
    ran = interlock("openapi", "check", "shop")

    assert ran.code == 0
    assert "drift: tool 'get_stock': count is a string (2 times)" in ran.out
    assert "canary" not in ran.out


def test_check_of_a_whole_document_without_problems_exits_with_0(interlock, document):
    assert interlock("openapi", "check", document).code == 0


def test_diff_of_a_server_shows_changes_of_its_tools_with_breaking_changes_first(
    interlock, shop, document, home
):
    old = json.loads(json.dumps(DOCUMENT))
    old["paths"]["/orders/{id}"]["get"]["summary"] = "Another order"
    old["paths"]["/orders/{id}"]["get"]["parameters"][0]["schema"] = {"type": "string"}
    old["paths"]["/unlisted"] = {"get": {}}
    (home / "old.json").write_text(json.dumps(old))
    ran = interlock("openapi", "diff", "old.json", "shop", "--json")

    assert ran.code == 1
    assert [(each["is_breaking"], each["text"]) for each in ran.json["changes"]] == [
        (True, "argument id has other rules"),
        (False, "its description has changed"),
    ]


def renamed(document: Path) -> None:
    """Rename an argument of one tool, and add an operation that is none."""
    root = json.loads(json.dumps(DOCUMENT))
    root["paths"]["/orders/{id}"]["get"]["parameters"][1]["name"] = "limit"
    root["paths"]["/unlisted"] = {"get": {}}
    document.write_text(json.dumps(root))


RENAMED = [
    (True, "get_order", "argument page_size is gone"),
    (False, "get_order", "argument limit is new"),
]


def shown(ran: Any) -> list[tuple[bool, str, str]]:
    return [(each["is_breaking"], each["subject"], each["text"]) for each in ran.json["changes"]]


def test_diff_without_a_second_document_compares_with_the_last_copy(interlock, shop, document):
    unknown = interlock("openapi", "diff", "shop")
    interlock("tools", "shop")
    same = interlock("openapi", "diff", "shop")
    renamed(document)
    changed = [interlock("openapi", "diff", "shop", "--json") for _ in range(2)]

    assert (unknown.code, "has not read the document of 'shop' before" in unknown.err) == (1, True)
    assert (same.code, same.out) == (0, "")
    assert [shown(each) for each in changed] == [RENAMED] * 2  # looking changes nothing
    assert changed[0].code == 1


def test_diff_of_a_server_alone_compares_with_the_accepted_definitions(interlock, shop, document):
    async def serve_once() -> None:
        database = await open_database(None)
        pins = Pinning(PinStore(database), Lock(), shop.parent, b"key")
        servers = {"shop": config.load(shop).servers["shop"]}
        async with Toolbox(servers, pins=pins):
            pass
        await database.close()

    asyncio.run(serve_once())
    renamed(document)
    interlock("tools", "shop")  # reads the changed document, and accepts nothing
    ran = interlock("openapi", "diff", "shop", "--json")

    assert "compared with the definitions that were accepted" in ran.err
    assert shown(ran) == RENAMED


def test_check_of_a_stale_document_reports_it_and_fails(interlock, shop, document):
    interlock("tools", "shop")
    document.write_text("{")
    of_server = interlock("openapi", "check", "shop", "--json")
    of_document = interlock("openapi", "check", document)

    assert of_server.code == 1
    assert "read from a stale copy: the document is not valid" in of_server.out
    assert (of_document.code, "not valid JSON" in of_document.err) == (1, True)


def test_diff_of_a_document_with_itself_is_empty(interlock, document):
    assert interlock("openapi", "diff", document, document)[:2] == (0, "")


def test_dry_run_prints_the_request_with_masked_credentials(interlock, shop):
    ran = interlock("call", "shop:get_order", "id=1", "page_size=2", "--dry-run")

    assert ran.out.splitlines() == [
        "GET https://shop.example/v1/orders/1?page%5Bsize%5D=2",
        "Accept: */*",
        "X-App: ***",
        "X-Key: ***",
    ]


def test_a_local_file_is_sent_where_a_tool_takes_a_file(interlock, shop, home):
    (home / "cat.png").write_bytes(b"\x89PNG")
    ran = interlock("call", "shop:add_photo", "photo=@cat.png", "--dry-run", "--json")

    assert 'filename="cat.png"' in ran.json["body"]
    assert "Content-Type: image/png" in ran.json["body"]


def test_a_missing_local_file_is_an_error(interlock, shop):
    ran = interlock("call", "shop:add_photo", "photo=@gone.png", "--dry-run")

    assert (ran.code, ran.err) == (
        1,
        "error: photo: gone.png cannot be read: No such file or directory\n",
    )


def test_dry_run_of_another_kind_of_server_is_refused(interlock, servers):
    servers()

    assert 'has no member "openapi"' in interlock("call", "e:say", "text=a", "--dry-run").err


def test_servers_list_shows_document_and_base_url_of_an_api(interlock, shop):
    (shown,) = [
        each
        for each in interlock("servers", "list", "--json").json["servers"]
        if each["name"] == "shop"
    ]

    assert shown["baseUrl"] == "https://shop.example/v1"
    assert shown["auth"] == ["Key"]
    assert "canary" not in str(shown)
