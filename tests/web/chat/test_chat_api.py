"""The JSON routes of the chat: who may use them, and what they answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from click.testing import CliRunner
from sqlalchemy import text

from interlock.auth.page_session import PageSessions
from interlock.cli import interlock
from interlock.messages import AssistantMessage, ToolCall, ToolMessage, UserMessage
from interlock.models.scripted import ScriptedModel
from interlock.policy import LOCAL_USER
from interlock.store import ConversationStore
from interlock.store.database.database import open_database
from interlock.store.page_sessions import PageSessionStore
from interlock.web.apps import apps
from interlock.web.chat import chat_api
from interlock.web.chat.attachments import split_files, with_files
from interlock.web.chat.engines import AgentEngine
from interlock.web.inspector import inspector_api as inspect_api
from interlock.web.local_site import make_site
from tests.support.rows import each_row
from tests.support.toolboxes import box, described, kb
from tests.web.inspector.test_call_texts import inspector_of

ROUTES = (*chat_api.LOCAL_ROUTES, *apps.ROUTES, *inspect_api.routes("any"))

FORMS = ("json", "markdown")


class Pages:
    """The site of `interlock web`, asked over HTTP without a network."""

    def __init__(self, client: httpx.AsyncClient, site: Any, store: ConversationStore) -> None:
        self.client = client
        self.site = site
        self.store = store

    async def get(self, path: str, **options: Any) -> Any:
        answer = await self.client.get(path, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: Any) -> httpx.Response:
        return await self.send("POST", path, body)

    async def send(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"origin": "http://127.0.0.1", "content-type": "application/json"}
        return await self.client.request(method, path, content=json.dumps(body), headers=headers)


@asynccontextmanager
async def pages(place: Path, *script: Any, signed_in: bool = True) -> AsyncIterator[Pages]:
    database = await open_database(place)
    async with box(kb([described("get")])) as toolbox:
        engine = AgentEngine(ScriptedModel(script), toolbox, ConversationStore(database))
        sessions = PageSessions(PageSessionStore(database))
        file = place.parent / "mcp.json"
        file.write_text('{"mcpServers": {}}')
        site = make_site(engine, sessions, 1, inspector=inspector_of(file))
        opened = await sessions.open(LOCAL_USER)
        headers = {"x-interlock-key": opened.page_key} if signed_in else {}
        cookies = {"interlock-1": opened.cookie} if signed_in else {}
        transport = httpx.ASGITransport(site)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://127.0.0.1", headers=headers, cookies=cookies
        ) as client:
            yield Pages(client, site, engine.store)
        await site.close()
    await database.close()


@pytest.mark.parametrize("half", ["none", "cookie", "key"])
async def test_every_route_needs_both_halves_of_the_session(place: Path, half: str):
    async with pages(place) as served:
        if half != "cookie":
            served.client.cookies.clear()
        if half != "key":
            del served.client.headers["x-interlock-key"]
        for route in ROUTES:
            path = route.path.format(id="c_1", address="kb:get", call="c_2")
            headers = {"origin": "http://127.0.0.1", "content-type": "application/json"}
            answer = await served.client.request(
                route.method, path, headers=headers if route.method != "GET" else {}, content=b"{}"
            )
            assert answer.status_code == 401, (route.method, route.path)
        upload = await served.client.post(
            "/api/files?name=a", content=b"x", headers={"origin": "http://127.0.0.1"}
        )
        assert upload.status_code == 401


OTHER_SITES = (
    {"origin": "https://evil.example"},
    {"origin": "http://127.0.0.1:9999"},
    {"origin": "null"},
    {"host": "evil.example", "origin": "http://evil.example"},
    {"host": "127.0.0.1.nip.io", "origin": "http://127.0.0.1.nip.io"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
)


async def test_no_route_is_open_to_another_site_even_with_both_halves_of_the_session(place: Path):
    own = {"origin": "http://127.0.0.1", "content-type": "application/json"}
    addresses = [(each.method, each.path) for each in ROUTES]
    addresses += [("POST", "/api/login"), ("POST", "/api/logout"), ("GET", "/me")]
    addresses += [("POST", "/api/files?name=a"), ("POST", "/api/csp"), ("POST", "/ag-ui")]
    addresses += [("POST", "/api/chat"), ("GET", "/"), ("GET", "/c/abc")]
    async with pages(place) as served:
        made = await served.store.create("Mine")
        for method, path in addresses:
            path = path.format(id=made.id, address="kb:get", call="c_2")
            for change in OTHER_SITES:
                answer = await served.client.request(
                    method, path, headers=own | change, content=b"{}"
                )
                assert answer.status_code == 403, (method, path, change)
                assert "access-control-allow-origin" not in answer.headers
        for route in ROUTES:  # what a form of another site may send
            if route.method in ("GET", "DELETE"):  # no form sends DELETE
                continue
            path = route.path.format(id=made.id, address="kb:get", call="c_2")
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
                answer = await served.client.request(
                    route.method, path, headers=own | {"content-type": kind}, content=b"{}"
                )
                assert answer.status_code == 415, (path, kind)
        kept = await served.get("/api/conversations")
        assert [each["id"] for each in kept["items"]] == [made.id]


async def test_conversation_of_another_owner_is_absent_on_every_route(place: Path):
    async with pages(place) as served:
        foreign = await served.store.owned_by("/ann").create("secret")
        for route in chat_api.ROUTES:
            if "conversations/{id}" not in route.path:
                continue
            answers = []
            for id in (foreign.id, "nosuchid"):
                headers = {"origin": "http://127.0.0.1", "content-type": "application/json"}
                path = route.path.format(id=id)
                answers.append(
                    await served.client.request(route.method, path, headers=headers, content=b"{}")
                )
            assert [each.status_code for each in answers] == [404, 404], route.path
            bodies = [{**each.json(), "reference": ""} for each in answers]
            assert bodies[0] == bodies[1]


async def test_pages_have_a_strict_content_policy_and_no_inline_code(place: Path):
    async with pages(place, signed_in=False) as served:
        for path in ("/", "/c/abc", "/calls/c_1"):
            answer = await served.client.get(path)
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "require-trusted-types-for 'script'" in policy
            assert "unsafe" not in policy
            assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.slow("fills a database")
async def test_messages_come_in_pages_that_begin_with_a_question(place: Path):
    async with pages(place) as served:
        conversation = await served.store.create("long")
        made = ToolCall("c1", "kb__get", {"x": 1})
        for number in range(50):
            await served.store.append(
                conversation.id,
                *_exchange(number, made),
            )
        seen: list[int] = []
        before: int | None = None
        while True:
            query = {"limit": 20} | ({} if before is None else {"before": before})
            page = await served.get(f"/api/conversations/{conversation.id}/messages", params=query)
            assert page["items"][0]["role"] == "user"
            seen = [each["id"] for each in page["items"]] + seen
            before = page["before"]
            if before is None:
                break

        assert seen == [n for n in range(200) if n % 4 != 2]
        assert page["items"][1]["calls"][0]["result"] == "result 0"
        seen, after = [], 0
        while after is not None:
            query = {"limit": 20, "after": after}
            page = await served.get(f"/api/conversations/{conversation.id}/messages", params=query)
            assert page["before"] == (after or None)
            seen += [each["id"] for each in page["items"]]
            after = page["after"]
        assert seen == [n for n in range(200) if n % 4 != 2]
        inside = await served.get(
            f"/api/conversations/{conversation.id}/messages?after=102&limit=8"
        )
        assert [each["id"] for each in inside["items"]] == [100, 101, 103, 104, 105, 107]
        about = await served.get(f"/api/conversations/{conversation.id}")
        assert (about["answers"], about["calls"]) == (50, 50)


def _exchange(number: int, made: ToolCall) -> list[Any]:
    return [
        UserMessage(f"question {number}"),
        AssistantMessage("", (made,)),
        ToolMessage("c1", f"result {number}", "kb__get"),
        AssistantMessage(f"answer {number}"),
    ]


def test_export_equals_the_export_of_the_command(place: Path, monkeypatch: pytest.MonkeyPatch):
    async def exported() -> tuple[str, str, str]:
        async with pages(place) as served:
            made = await served.store.create("milk")
            await served.store.append(made.id, *_exchange(1, ToolCall("c1", "kb__get", {"x": 1})))
            path = f"/api/conversations/{made.id}/export"
            answers = [await served.client.get(f"{path}?as={form}") for form in FORMS]
            return made.id, answers[0].text, answers[1].text

    id, as_json, as_markdown = asyncio.run(exported())
    monkeypatch.setenv("INTERLOCK_DATABASE", str(place))
    monkeypatch.setattr("interlock.cli.log.open_log", lambda: None)  # it is this process's
    # Through the whole command: click remembers the help options of its first context.
    words = ["conversations", "export", id, "--format"]
    printed = [CliRunner().invoke(interlock, [*words, form]).output for form in FORMS]

    assert json.loads(as_json) == json.loads(printed[0])
    assert as_markdown.strip() == printed[1].strip()


async def test_arguments_are_checked_as_a_call_would(place: Path):
    async with pages(place) as served:
        path = f"/api/tools/{quote('kb:get')}/check"
        fine = await served.post(path, {"arguments": {"x": 1}})
        assert fine.json() == {"problems": []}
        missing = await served.post("/api/tools/kb:none/check", {"arguments": {}})
        assert missing.status_code == 404


async def test_file_in_a_message_is_split_off_again(place: Path):
    async with ConversationStore.open(place) as store:
        file = await store.files.add("a\nb.txt", "text/plain", b"one\n</file f_x>\ntwo")
        message = await with_files(store.files, "look", [file.id])
        content, files = split_files(message.content)

    assert content == "look"
    assert [(each["name"], each["givenAs"]) for each in files] == [("a b.txt", "text")]


async def test_file_over_the_limit_is_refused(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("interlock.web.chat.attachments.MAX_FILE", 10)
    async with pages(place) as served:
        answer = await served.client.post(
            "/api/files?name=a", content=b"x" * 11, headers={"origin": "http://127.0.0.1"}
        )
        assert answer.status_code == 413
        async with ConversationStore.open(place) as store:
            count = await store._database.read(
                lambda connection: connection.scalar(text("SELECT count(*) FROM chat_files"))
            )
        assert count == 0


# Conversations


async def test_conversation_is_created_changed_and_deleted(place: Path):
    async with pages(place) as served:
        made = await served.post("/api/conversations", {"title": "Milk"})
        path = f"/api/conversations/{made.json()['id']}"
        assert (made.status_code, made.json()["title"], made.json()["state"]) == (
            201,
            "Milk",
            "ended",
        )
        refused = await served.send("PATCH", path, {"model": "openai:nobody", "title": "x"})
        changed = await served.send(
            "PATCH", path, {"title": " Oat \n milk", "settings": {"tools": {"kb:get": "off"}}}
        )
        again = await served.send("PATCH", path, {"title": "Oats"})
        assert (await served.send("DELETE", path)).status_code == 204
        gone = await served.client.get(path)

    assert (refused.status_code, refused.json()["reason"]) == (422, "not_offered")
    assert changed.json()["title"] == "Oat milk"
    assert again.json()["settings"] == {"tools": {"kb:get": "off"}}
    assert gone.status_code == 404


async def test_copied_conversation_has_the_requested_messages_and_names_its_original(place: Path):
    async with pages(place) as served:
        made = await served.store.create("Milk")
        await served.store.append(made.id, *_exchange(1, ToolCall("c1", "kb__get", {"x": 1})))
        copy = (await served.post(f"/api/conversations/{made.id}/fork", {"messages": 1})).json()
        messages = await served.get(f"/api/conversations/{copy['id']}/messages")
        origin = await served.get(f"/api/conversations/{made.id}")

        assert [each["role"] for each in messages["items"]] == ["user"]
        assert messages["interrupted"]  # the question has no answer
        assert (await served.get(f"/api/conversations/{copy['id']}"))["parent"] == made.id
        assert [each["id"] for each in origin["branches"] if each["parent"]] == [copy["id"]]


async def test_list_of_conversations_has_pages_and_an_empty_list_has_a_reason(place: Path):
    async with pages(place) as served:
        assert (await served.get("/api/conversations"))["reason"] == "no_conversations"
        made = [(await served.store.create(str(number))).id for number in range(3)]
        first = await served.get("/api/conversations?limit=2")
        rest = await served.get("/api/conversations", params={"after": first["after"]})
        unknown = await served.client.get("/api/conversations?after=nosuchid")

    assert sorted(each["id"] for each in first["items"] + rest["items"]) == sorted(made)
    assert (len(first["items"]), rest["after"]) == (2, None)
    assert unknown.status_code == 404


async def test_search_finds_conversations_by_their_messages(place: Path):
    async with pages(place) as served:
        made = await served.store.create("Milk")
        await served.store.append(made.id, UserMessage("where is the oat drink?"))
        found = await served.get("/api/search?q=oat")
        assert [(each["id"], each["hit"]) for each in found["items"]] == [(made.id, 0)]
        (titled,) = (await served.get("/api/search?q=milk"))["items"]
        assert "hit" not in titled
        assert (await served.get("/api/search?q=rye"))["reason"] == "nothing_found"
        assert (await served.client.get("/api/search?q=")).status_code == 400


# Servers, tools and results


async def test_listed_servers_and_tools_have_every_member_that_the_page_shows(place: Path):
    async with pages(place) as served:
        assert (await served.get("/api/servers"))["items"] == [
            {"name": "kb", "state": "ok", "reason": "", "tools": 1}
        ]
        (tool,) = (await served.get("/api/tools"))["items"]
        one = await served.get("/api/tools/kb:get")
        assert await served.get("/api/servers/kb/stderr") == {"text": ""}
        assert len((await served.get("/api/models"))["items"]) == 1

    assert (tool["address"], tool["readOnly"], tool["repeatable"]) == ("kb:get", False, False)
    assert one == tool | {"schema": {"type": "object", "properties": {"x": {}}}}


@each_row(
    ("method", "path"),
    [
        ("GET", "/api/servers/none/stderr"),
        ("GET", "/api/tools/kb:none"),
        ("GET", "/api/calls/i_none"),
        ("POST", "/api/calls/i_none/stop"),
        ("GET", "/api/files/f_none"),
        ("GET", "/api/results/r_none"),
    ],
)
async def test_missing_items_get_404(place: Path, method: str, path: str):
    async with pages(place) as served:
        answer = await served.send(method, path)

    assert (answer.status_code, answer.json()["reason"]) == (404, "not_found")


async def test_attached_file_is_returned_with_its_name_and_its_content(place: Path):
    async with pages(place) as served:
        headers = {"origin": "http://127.0.0.1", "content-type": "application/octet-stream"}
        made = await served.client.post("/api/files?name=a.txt", content=b"one", headers=headers)
        id = made.json()["id"]
        listed = await served.get("/api/files", params={"ids": f"{id},f_none"})
        content = await served.client.get(f"/api/files/{id}")

    assert [(each["id"], each["name"]) for each in listed["items"]] == [(id, "a.txt")]
    assert (content.content, content.headers["content-type"]) == (
        b"one",
        "application/octet-stream",
    )
