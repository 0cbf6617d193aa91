"""The chat of `interlock serve`: who may use it, what its calls pass, and how it ends."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from interlock.store.audit.names import Pseudonyms
from interlock.store.database.disk_reserve import RESERVE, DiskReserve
from interlock.store.people import PeopleStore
from tests.gateway.conftest import RunningGateway, bearer, offering, running
from tests.support.scripted_server import LEGACY, Json, ScriptedServer, text, tool

__all__ = ["running"]


def chat(folder: Path, *replies: Json, **gateway: Any) -> Json:
    """Return the member `gateway` with a chat whose model follows a script."""
    script = folder / "script.json"
    script.write_text(json.dumps(replies))
    return {"chat": {"models": [f"scripted:{script}"]}, **gateway}


def calling(name: str) -> Json:
    return {"content": "", "tool_calls": [{"id": "call_1", "name": name}]}


class Socket:
    """One connection to /ws, in this process."""

    def __init__(self, gateway: RunningGateway) -> None:
        self._sent: asyncio.Queue[Json] = asyncio.Queue()
        self._received: asyncio.Queue[Json] = asyncio.Queue()
        self._sent.put_nowait({"type": "websocket.connect"})
        scope = {
            "type": "websocket",
            "path": "/ws",
            "root_path": "",
            "headers": [(b"host", b"127.0.0.1:8000")],
            "server": ("127.0.0.1", 8000),
            "client": ("127.0.0.1", 50000),
            "subprotocols": [],
        }
        app = gateway.endpoint.app
        self.task = asyncio.create_task(app(scope, self._sent.get, self._received.put))  # type: ignore[arg-type]

    def send(self, **frame: Any) -> None:
        self._sent.put_nowait({"type": "websocket.receive", "text": json.dumps(frame)})

    async def until(self, *kinds: str) -> Json:
        """Return the next frame of one of these types; "close" is the end of the connection."""
        while True:
            message = await self._received.get()
            if message["type"] == "websocket.close":
                return {"type": "close", "code": message["code"]}
            frame: Json = json.loads(message.get("text") or "{}")
            if frame.get("type") in kinds:
                return frame

    async def leave(self) -> None:
        self._sent.put_nowait({"type": "websocket.disconnect", "code": 1000})
        await self.task


def asking(gateway: RunningGateway, key: str) -> Socket:
    """Return a socket on which the user of a key has asked something."""
    socket = Socket(gateway)
    socket.send(type="hello", token=key)
    socket.send(type="message", content="go")
    return socket


def audited(folder: Path) -> list[tuple[str, str, str]]:
    with closing(sqlite3.connect(folder / "gateway.db")) as database:
        rows = database.execute("SELECT kind, user, body FROM audit ORDER BY seq").fetchall()
    return [(kind, user, str(body)) for kind, user, body in rows if kind in ("intent", "outcome")]


async def test_page_logs_in_with_a_key_and_lists_the_tools_of_its_user(running, tmp_path: Path):
    rules = [{"id": "a", "effect": "allow", "who": ["user:anna"], "tools": ["crm:x"]}]
    settings = chat(tmp_path, policy={"rules": rules})
    async with running(settings, crm=offering("x", "y")) as gateway:
        page = await gateway.http.request("GET", "/")
        body = json.dumps({"key": await gateway.key("anna")}).encode()
        opened = await gateway.http.request("POST", "/api/login", body)
        cookie = (opened.header("set-cookie") or "").partition(";")[0]
        session = {"cookie": cookie, "x-interlock-key": opened.json["pageKey"]}
        tools = await gateway.http.request("GET", "/api/tools", headers=session)
        halved = await gateway.http.request("GET", "/api/tools", headers={"cookie": cookie})

    assert (page.code, opened.code, halved.code) == (200, 200, 401)
    assert [each["address"] for each in tools.json["items"]] == ["crm:x"]


async def test_chat_of_one_view_offers_its_tools_only(running, tmp_path: Path):
    views = {"support": {"servers": ["crm"]}, "other": {"servers": ["time"]}}
    settings = chat(tmp_path, calling("time__y"), {"content": "No."}, views=views)
    time = offering("y")
    async with running(settings, crm=offering("x"), time=time) as gateway:
        gateway.serve(view="support")
        key = await gateway.key("anna")
        tools = await gateway.http.request("GET", "/api/tools", headers=bearer(key))
        other = bearer(await gateway.key("bert", view="other"))
        refused = await gateway.http.request("GET", "/api/tools", headers=other)
        socket = asking(gateway, key)
        called = await socket.until("tool_complete")
        await socket.leave()

    assert [each["address"] for each in tools.json["items"]] == ["crm:x"]
    assert refused.code == 404
    assert called["outcome"] != "ran"
    assert time.sent("tools/call") == []


async def test_chat_call_is_recorded_as_a_call_of_its_user(running, tmp_path: Path):
    crm = offering("x")
    settings = chat(tmp_path, calling("crm__x"), {"content": "It is so."})
    async with running(settings, crm=crm) as gateway:
        socket = asking(gateway, await gateway.key("anna"))
        ran = await socket.until("tool_complete")
        answer = await socket.until("complete", "error")
        await socket.leave()
        await gateway.settle()

    assert (ran["outcome"], ran["tool_result"]) == ("ran", "done")
    assert answer["content"] == "It is so."
    (intent, *_), (outcome, *_) = (each for each in audited(tmp_path))
    assert (intent, outcome) == ("intent", "outcome")
    assert audited(tmp_path)[0][1] == "user:anna"


async def test_chat_of_many_tools_searches_and_records_the_search(running, tmp_path: Path):
    crm = offering("x", "y")
    found = {"id": "call_1", "name": "interlock__search_tools", "input": {"query": "x"}}
    settings = chat(tmp_path, {"content": "", "tool_calls": [found]}, {"content": "It is so."})
    settings["chat"]["toolSearch"] = "on"
    rules = [{"id": "a", "effect": "allow", "who": ["user:anna"], "tools": ["crm:x"]}]
    async with running(settings | {"policy": {"rules": rules}}, crm=crm) as gateway:
        socket = asking(gateway, await gateway.key("anna"))
        ran = await socket.until("tool_complete")
        await socket.until("complete", "error")
        await socket.leave()
        await gateway.settle()

    assert (ran["tool_name"], ran["outcome"]) == ("interlock:search_tools", "ran")
    assert "crm__x" in ran["tool_result"]
    assert "crm__y" not in ran["tool_result"]
    with closing(sqlite3.connect(tmp_path / "gateway.db")) as database:
        rows = database.execute("SELECT kind, user, server, tool, status FROM audit ORDER BY seq")
        records = [each for each in rows if each[0] in ("intent", "outcome")]
    record = ("user:anna", "interlock", "interlock:search_tools")
    assert records == [("intent", *record, ""), ("outcome", *record, "ok")]


async def test_call_that_must_be_approved_runs_once_its_user_approves_it(running, tmp_path: Path):
    crm = offering("x")
    rule = {"id": "a", "effect": "ask", "who": ["*"], "tools": ["crm:x"], "approvers": ["caller"]}
    settings = chat(tmp_path, calling("crm__x"), {"content": "Done."}, policy={"rules": [rule]})
    async with running(settings, crm=crm) as gateway:
        socket = asking(gateway, await gateway.key("anna"))
        asked = await socket.until("approval", "complete", "error")
        before = len(crm.sent("tools/call"))
        (kept,) = await gateway.assembly.services.approvals.list()
        socket.send(
            type="approve", approval_id=asked["approval_id"], hash=asked["hash"], decision="allow"
        )
        ran = await socket.until("tool_complete")
        await socket.until("complete", "error")
        await socket.leave()

    assert (kept.id, kept.hash) == (asked["approval_id"], asked["hash"])
    assert (before, len(crm.sent("tools/call")), ran["outcome"]) == (0, 1, "ran")


async def test_key_without_mcp_scope_cannot_chat(running, tmp_path: Path):
    async with running(chat(tmp_path, {"content": "Hello"}), crm=offering("x")) as gateway:
        key = await gateway.key("op", "admin:read")
        listed = await gateway.http.request("GET", "/api/conversations", headers=bearer(key))
        uploaded = await gateway.http.request("POST", "/api/files", b"x", headers=bearer(key))
        closed = await asking(gateway, key).until("ready", "complete")

    assert (listed.code, uploaded.code, closed) == (403, 403, {"type": "close", "code": 4401})


async def test_revoked_key_ends_its_turn(running, tmp_path: Path):
    crm = offering("x")
    began = asyncio.Event()

    async def hang(_: Json) -> None:
        began.set()
        await asyncio.Event().wait()

    crm.answers["tools/call"] = hang
    async with running(chat(tmp_path, calling("crm__x")), crm=crm) as gateway:
        key = await gateway.key()
        socket = asking(gateway, key)
        await began.wait()
        await gateway.keys.revoke(gateway.assembly.services.keys.find(key.encode()).stored.id)
        await gateway.assembly.services.keys.refresh()
        gateway.assembly.services.keys.report_ended()
        ended = await socket.until("complete", "error")

    assert (ended["type"], ended.get("stop_reason")) == ("complete", "stopped")


async def test_user_over_a_quota_is_refused_on_every_way_and_can_delete(running, tmp_path: Path):
    settings = chat(tmp_path, {"content": "x" * 3_000}, {"content": "Short."})
    quota = {"perUser": 3_000}
    settings["chat"]["quotas"] = {"conversations": quota, "files": quota}
    async with running(settings, crm=offering("x")) as gateway:
        key = await gateway.key("anna")
        socket = asking(gateway, key)
        full = await socket.until("complete", "error")
        session = {**bearer(key), "origin": "http://127.0.0.1:8000"}
        file = ("POST", "/api/files", b"x" * 3_000, session)
        upload = await gateway.http.request(*file, query="name=a")
        created = ("POST", "/api/conversations", b"{}", session)
        while (made := await gateway.http.request(*created)).code == 201:
            pass
        listed = await gateway.http.request("GET", "/api/conversations", headers=session)
        for each in listed.json["items"]:
            await gateway.http.request("DELETE", f"/api/conversations/{each['id']}", b"", session)
        socket.send(type="message", content="go")
        again = await socket.until("complete", "error")
        await socket.leave()
        metrics = (await gateway.http.request("GET", "/metrics")).body.decode()

    assert (full["type"], full["code"]) == ("error", "storage_full")
    assert "(limit 3,000); delete a conversation" in full["message"]
    for reply in (upload, made):
        said = json.loads(reply.body)
        assert (reply.code, said["reason"]) == (507, "storage_full")
        assert "(limit 3,000); delete a conversation" in said["detail"]
    assert again["content"] == "Short."
    assert 'interlock_refusals_total{reason="storage_full"} 3' in metrics


async def test_nearly_full_disk_refuses_content_and_calls_are_still_recorded(
    running, tmp_path: Path
):
    crm = offering("x")
    async with running(chat(tmp_path, {"content": "Hello."}), crm=crm) as gateway:
        services = gateway.assembly.services
        full = DiskReserve(tmp_path, free=lambda _: RESERVE)
        services.database.reserve = services.kept.reserve = full
        key = await gateway.key("anna")
        socket = asking(gateway, key)
        refused = await socket.until("complete", "error")
        await socket.leave()
        called = await gateway.call("crm__x", key)
        await gateway.settle()

    assert (refused["code"], called.code) == ("storage_full", 200)
    assert "are for the audit trail); tell the operator" in refused["message"]
    assert [kind for kind, _, _ in audited(tmp_path)] == ["intent", "outcome"]
    assert len(crm.sent("tools/call")) == 1


async def test_forgotten_user_loses_turn_session_and_key_of_a_running_gateway(
    running, tmp_path: Path
):
    crm = offering("x")
    began = asyncio.Event()

    async def hang(_: Json) -> None:
        began.set()
        await asyncio.Event().wait()

    crm.answers["tools/call"] = hang
    async with running(chat(tmp_path, calling("crm__x")), crm=crm) as gateway:
        services = gateway.assembly.services
        key = await gateway.key()
        socket = asking(gateway, key)
        await began.wait()
        people = PeopleStore(services.database)
        found = await people.find("user:anna")
        await people.forget("user:anna", found, Pseudonyms(services.secret)["user:anna"])
        ended = await socket.until("complete", "error")  # the gateway follows the change feed
        refused = await gateway.http.request("GET", "/api/tools", headers=bearer(key))
        left = await people.find("user:anna")

    assert (ended["type"], ended.get("stop_reason")) == ("complete", "stopped")
    assert refused.code == 401
    assert not any(left.counts.values())


async def test_draining_gateway_ends_the_chat_and_refuses_new_sockets(running, tmp_path: Path):
    async with running(chat(tmp_path, {"content": "Hello"}), crm=offering("x")) as gateway:
        key = await gateway.key()
        socket = asking(gateway, key)
        await socket.until("complete")
        gateway.endpoint.drain()
        await gateway.endpoint.close()
        closed = await socket.until()
        refused = await Socket(gateway).until("ready")
        other = await gateway.http.request("POST", "/ag-ui", b"{}", headers=bearer(key))

    assert (closed["code"], refused["code"], other.code) == (1001, 1001, 503)


async def test_kept_result_is_read_by_its_owner_only(running, tmp_path: Path):
    lines = "".join(f"line {number}\n" for number in range(20_000))
    tools = {"tools": [tool("x")]}
    library = ScriptedServer(LEGACY, {"tools/list": tools, "tools/call": text(lines)})
    async with running(chat(tmp_path, {"content": "Hello"}), s=library) as gateway:
        anna, bert = await gateway.key("anna"), await gateway.key("bert")
        made = (await gateway.call("s__x", anna)).json["result"]
        path = f"/api/results/{made['_meta']['interlock/result']['id']}"
        own = await gateway.http.request("GET", path, headers=bearer(anna), query="line=7&limit=1")
        foreign = await gateway.http.request("GET", path, headers=bearer(bert))

    assert (own.code, foreign.code) == (200, 404)
    assert own.json["content"][0]["text"].startswith("line 6\n")


async def test_gateway_without_the_member_chat_serves_no_pages(running):
    async with running(crm=offering("x")) as gateway:
        headers = bearer(await gateway.key())
        paths = ("/", "/c/1", "/api/conversations")
        codes = [(await gateway.http.request("GET", each, headers=headers)).code for each in paths]

    assert codes == [404, 404, 404]


async def test_the_models_of_the_chat_are_in_the_metrics_of_the_gateway(running, tmp_path: Path):
    settings = chat(tmp_path, {"content": "canary", "usage": {"input_tokens": 7}})
    async with running(settings, crm=offering("x")) as gateway:
        socket = asking(gateway, await gateway.key("anna"))
        await socket.until("complete", "error")
        await socket.leave()
        text = gateway.assembly.services.metrics.text()

    labels = 'gen_ai_provider_name="scripted",gen_ai_request_model="script.json"'
    assert f'usage_input_tokens_total{{gen_ai_operation_name="chat",{labels}' in text
    assert "canary" not in text
