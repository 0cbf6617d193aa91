"""The audit trail over the API: the same calls as in the command, in pages."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from itertools import chain
from pathlib import Path

import pytest

from interlock.store.audit.reading import AuditReader, CallFilter
from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering


@pytest.mark.slow("fills a database")
async def test_calls_are_listed_in_pages_as_the_command_lists_them(running):
    async with running({}, crm=offering("x", "y")) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key()
        for number in range(5):
            await gateway.call("crm__x" if number % 2 else "crm__y", key)
        await gateway.call("crm__x", f"{key}x")
        await gateway.settle()
        pages, query = [], "limit=2"
        while query:
            reply = await operator.send("GET", "/audit", query=query)
            pages.append(reply.json)
            query = (reply.header("link") or "").partition("?")[2].partition(">")[0]
        async with AuditReader.open(gateway.assembly.services.database.location) as reader:
            whole = await reader.calls(CallFilter())

        assert [len(each) for each in pages] == [2, 2, 2, 0]
        assert [*chain(*pages)] == whole
        of_x = await operator.get("/audit", "tool=crm:x&user=anna&status=ok&since=1h")
        assert {each["tool"] for each in of_x} == {"crm:x"}
        assert len(of_x) == 2
        assert (await operator.get("/audit", "reason=bad_credential"))[0]["status"] == "refused"


@pytest.mark.slow("fills a database")
async def test_one_call_is_shown_and_an_absent_one_is_not_found(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        await gateway.call("crm__x", await gateway.key())
        await gateway.settle()
        ((call,),) = (await operator.get("/audit"),)
        records = await operator.get(f"/audit/{call['call']}")

        assert [each["kind"] for each in records] == ["intent", "outcome"]
        assert await operator.refused("GET", "/audit/c_0") == (404, "not_found")
        for query in ("after=x", "status=good", "since=soon"):
            assert await operator.refused("GET", "/audit", query=query) == (400, "bad_request")


@pytest.mark.slow("fills a database")
async def test_export_has_every_record_on_a_line(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        await gateway.call("crm__x", await gateway.key())
        await gateway.settle()
        reply = await operator.send("GET", "/audit/export")
        nothing = await operator.send("GET", "/audit/export", query="until=2020-01-01")

    assert reply.header("content-type") == "application/x-ndjson"
    kinds = [json.loads(line)["kind"] for line in reply.body.splitlines()]
    assert [each for each in kinds if each != "pin"] == [
        "started",
        "config",
        "intent",
        "outcome",
        "config",
    ]
    assert nothing.body == b""


@pytest.mark.slow("fills a database")
async def test_verification_finds_a_changed_record(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        await gateway.call("crm__x", await gateway.key())
        await gateway.settle()
        assert (await operator.change("POST", "/audit/verify", {}))["whole"]
        with (
            closing(sqlite3.connect(gateway.assembly.services.database.location)) as database,
            database,
        ):
            database.execute("UPDATE audit SET \"user\" = 'user:eve' WHERE kind = 'intent'")
        found = await operator.change("POST", "/audit/verify", {})

    assert not found["whole"]
    assert found["problems"]


@pytest.mark.slow("fills a database")
async def test_verification_compares_the_copy_and_finds_an_older_database(running, tmp_path: Path):
    copy, database = tmp_path / "copy", tmp_path / "gateway.db"
    async with running({"audit": {"copy": str(copy)}}, crm=offering("x")) as gateway:
        key = await gateway.key()
        await gateway.call("crm__x", key)
        await gateway.settle()
        with (
            closing(sqlite3.connect(database)) as source,
            closing(sqlite3.connect(tmp_path / "older.db")) as older,
        ):
            source.backup(older)
        await gateway.call("crm__x", key)
    async with running({"audit": {"copy": str(copy)}}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        now = await operator.change("POST", "/audit/verify", {})
    (tmp_path / "older.db").replace(database)
    async with running({"audit": {"copy": str(copy)}}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        older_found = await operator.change("POST", "/audit/verify", {})
        shutil.rmtree(copy)
        unread = await operator.change("POST", "/audit/verify", {})

    assert (now["whole"], now["copy"]) == (True, {"compared": True})
    assert not older_found["whole"]
    assert unread["whole"]
    assert unread["copy"]["compared"] is False
