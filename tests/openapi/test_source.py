"""Where a document comes from, and how a changed or missing one is noticed."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from interlock import Client, Toolbox
from interlock.errors import InterlockError
from interlock.oauth import fetcher
from interlock.openapi import source as source_module
from interlock.openapi.references import DocumentError
from interlock.openapi.server import OpenApiServer
from interlock.openapi.source import Source
from tests.openapi.scripted_api import ScriptedApi, http, scripted_api
from tests.support.rows import each_row


def document(*operations: str, **more: Any) -> bytes:
    paths = {f"/{name}": {"get": {"operationId": name}} for name in operations}
    info = {"title": "T", "version": "1"}
    return json.dumps({"openapi": "3.1.0", "info": info, "paths": paths, **more}).encode()


@pytest.fixture
async def site() -> AsyncIterator[ScriptedApi]:
    async with scripted_api() as api:
        yield api


def from_url(site: ScriptedApi, **headers: str) -> Source:
    return Source(f"{site.url}/openapi.json", headers, site.url)


def write(path: Path, content: bytes) -> None:
    """Write a file; its time changes even if the clock is coarse."""
    before = path.stat().st_mtime_ns if path.exists() else 0
    path.write_bytes(content)
    os.utime(path, ns=(before + 10**9, before + 10**9))


# Files


async def test_a_changed_file_is_read_again_and_an_unchanged_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, document("one"))
    source = Source(path, {}, "https://a.example")
    first = await source.load()
    unchanged = await source.load_if_changed()
    write(path, document("two"))
    changed = await source.load_if_changed()

    assert "GET /one" in first.keys
    assert unchanged is None
    assert changed is not None
    assert "GET /two" in changed.keys


@pytest.mark.parametrize("content", [b"{", b"[]", None], ids=["broken", "a list", "gone"])
async def test_a_file_that_cannot_be_read_again_is_stale_until_it_can(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "a.json"
    write(path, document("one"))
    source = Source(path, {}, "https://a.example")
    await source.load()
    if content is None:
        path.unlink()
    else:
        write(path, content)
    assert await source.load_if_changed() is None
    assert source.stale

    write(path, document("two", tags=[]))
    assert await source.load_if_changed() is not None
    assert not source.stale


async def test_a_change_of_a_part_in_another_file_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    operation = {"operationId": "one", "parameters": [{"$ref": "part.json#/p"}]}
    write(path, document(paths={"/one": {"get": operation}}))
    parameter = {"name": "a", "in": "query", "schema": {"type": "string"}}
    write(tmp_path / "part.json", json.dumps({"p": parameter}).encode())
    server = OpenApiServer(document=path, base_url="https://a.example", tools={"one": "one"})
    await server.load()
    parameter["name"] = "b"
    write(tmp_path / "part.json", json.dumps({"p": parameter}).encode())

    assert await server.refresh()
    assert server.tools.by_name["one"].plan.arguments == {"b": {"in": "query", "name": "b"}}


async def test_tool_returns_when_the_missing_part_of_its_document_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    operation = {"operationId": "one", "parameters": [{"$ref": "part.json#/p"}]}
    write(path, document(paths={"/one": {"get": operation}}))
    server = OpenApiServer(document=path, base_url="https://a.example", tools={"one": "one"})
    await server.load()
    before = server.missing
    parameter = {"name": "a", "in": "query", "schema": {"type": "string"}}
    write(tmp_path / "part.json", json.dumps({"p": parameter}).encode())

    assert before == ("tool 'one': the file of 'part.json#/p' is missing",)
    assert await server.refresh()
    assert not server.missing


@pytest.mark.parametrize("content", [b"{", None], ids=["broken", "gone"])
async def test_after_a_restart_a_file_that_cannot_be_read_is_replaced_by_its_copy(
    tmp_path: Path, content: bytes | None
) -> None:
    path, part = tmp_path / "a.json", tmp_path / "part.json"
    operation = {"operationId": "one", "parameters": [{"$ref": "part.json#/p"}]}
    own = {"operationId": "two", "parameters": [{"$ref": "a.json#/x-own"}]}
    paths = {"/one": {"get": operation}, "/two": {"get": own}}
    parameter = {"name": "a", "in": "query", "schema": {"type": "string"}}
    write(part, json.dumps({"p": parameter}).encode())

    def started() -> OpenApiServer:
        tools = {"one": "one", "two": "two"}
        return OpenApiServer(document=path, base_url="https://a.example", tools=tools)

    write(path, document(paths=paths, **{"x-own": parameter}))
    before = started()
    await before.load()
    for each in (path, part):
        each.unlink()
    if content is not None:
        path.write_bytes(content)
    async with Toolbox({"t": started()}) as toolbox:
        status = toolbox.status["t"]
        tools = [entry.tool.name for entry in toolbox.tools]
    after = started()
    await after.load()
    write(part, json.dumps({"p": parameter}).encode())
    write(path, document(paths=paths, **{"x-own": parameter | {"name": "b"}}))

    assert tools == ["one", "two"]
    assert any("the document is stale: " in each for each in status.missing)
    assert await after.refresh()
    assert after.tools.by_name["two"].plan.arguments == {"b": {"in": "query", "name": "b"}}
    assert not after.missing


async def test_copy_of_a_document_is_stored_once_for_each_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    written: list[Path] = []
    monkeypatch.setattr(
        "interlock.durable.replace",
        lambda path, content: (written.append(path), path.write_bytes(content)),
    )
    for operations in (["one"], ["one"], ["one", "two"]):
        if operations != ["one"] or not path.exists():
            write(path, document(*operations))
        source = Source(path, {}, "https://a.example")
        await source.keep(await source.load())

    assert [each.suffix for each in written] == [".json", ".mark"] * 2


async def test_a_document_without_a_copy_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"gone\.json cannot be read"):
        await Source(tmp_path / "gone.json", {}, "https://a.example").load()


# URLs


async def test_a_document_is_fetched_with_the_operators_headers_from_the_host_of_the_api(
    site: ScriptedApi,
) -> None:
    site.answers = [http(200, document("one"))]
    await from_url(site, **{"X-Key": "k"}).load()
    elsewhere = Source(f"{site.url}/openapi.json", {"X-Key": "k"}, "https://a.example")
    await elsewhere.load()

    assert [each.headers.get("x-key") for each in site.received] == ["k", None]


async def test_an_unchanged_document_is_not_sent_again_even_after_a_restart(
    site: ScriptedApi,
) -> None:
    site.answers = [http(200, document("one"), ETag='"1"'), http(304)]
    source = from_url(site)
    await source.keep(await source.load())
    unchanged = await source.load_if_changed()
    after_restart = await from_url(site).load()

    assert unchanged is None
    assert "GET /one" in after_restart.keys
    assert [each.headers.get("if-none-match") for each in site.received] == [None, '"1"', '"1"']


@each_row("failure", [http(500), None, http(200, b"<html>")])
async def test_without_its_url_the_last_good_document_is_used_and_stale(
    site: ScriptedApi, failure: bytes | None
) -> None:
    site.answers = [http(200, document("one")), failure]
    before = from_url(site)
    await before.keep(await before.load())
    source = from_url(site)
    found = await source.load()

    assert "GET /one" in found.keys
    assert source.stale


async def test_without_url_and_copy_there_is_an_error(site: ScriptedApi) -> None:
    site.answers = [http(404)]

    with pytest.raises(InterlockError, match="answers 404"):
        await from_url(site).load()


async def test_a_redirected_document_is_not_followed(site: ScriptedApi) -> None:
    site.answers = [http(302, Location="http://127.0.0.1:1/x")]

    with pytest.raises(InterlockError, match="redirects"):
        await from_url(site).load()


async def test_a_document_over_the_limit_is_refused(
    site: ScriptedApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_module, "MAX_URL_BYTES", 1_000)
    site.answers = [http(200, b" " * 1_001)]

    with pytest.raises(InterlockError, match="over the limit"):
        await from_url(site).load()


@each_row(
    ("header", "seconds"),
    [("max-age=600", 600), ("max-age=1", 60), ("max-age=9999999", 86_400), ("no-cache", 300)],
)
async def test_interval_between_checks_of_a_url_follows_its_max_age(
    site: ScriptedApi, header: str, seconds: int
) -> None:
    site.answers = [http(200, document("one"), Cache_Control=header)]
    source = from_url(site)
    await source.load()

    assert source.interval == seconds


# Tools


async def test_clients_are_notified_once_and_only_if_a_listed_tool_changed(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    write(path, document("one", "two"))
    server = OpenApiServer(document=path, base_url="https://a.example", tools={"one": "one"})
    changed: list[str] = []
    client = Client.memory(server, revision="legacy", on_list_changed=changed.append)
    async with client:
        await client.list_tools()
        write(path, document("one", "two", "three"))
        unlisted = await server.refresh()
        write(path, document("one").replace(b'"operationId"', b'"summary": "New", "operationId"'))
        listed = await server.refresh()
        (tool,) = await client.list_tools()  # after the notification

    assert (unlisted, listed) == (False, True)
    assert changed == ["tools"]
    assert tool.title == "New"


async def test_an_operation_that_a_new_document_brings_cannot_be_called(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path, document("one"))
    server = OpenApiServer(document=path, base_url="https://a.example", tools={"one": "one"})
    async with Client.memory(server) as client:
        write(path, document("one", "two"))
        await server.refresh()
        for name in ("two", "TWO", "GET /two", "/two"):
            with pytest.raises(InterlockError, match="unknown tool"):
                await client.call_tool(name)

    assert list(server.tools.by_name) == ["one"]


async def test_a_document_that_does_not_arrive_costs_its_own_server_only(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(fetcher, "TIMEOUT", 0.2)
    silent = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{silent.getsockname()[1]}"
    write(tmp_path / "a.json", document("one"))
    places = {"slow": f"{url}/openapi.json", "quick": tmp_path / "a.json"}
    servers = {
        name: OpenApiServer(document=place, base_url=url, tools={"one": "one"})
        for name, place in places.items()
    }
    async with Toolbox(servers) as toolbox:
        states = {name: status.state for name, status in toolbox.status.items()}
        reason = toolbox.status["slow"].reason
    silent.close()

    assert states == {"slow": "failed", "quick": "ok"}
    assert "has not answered within 0.2 s" in reason


async def test_operation_missing_in_a_new_document_removes_its_tool_with_the_reason(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.json"
    write(path, document("one", "two"))
    tools = {"one": "one", "two": "two"}
    server = OpenApiServer(document=path, base_url="https://a.example", tools=tools)
    await server.load()
    write(path, document("one"))
    await server.refresh()

    assert list(server.tools.by_name) == ["one"]
    assert "no operation 'two'" in server.missing[0]
