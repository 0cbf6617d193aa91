"""Sessions of legacy clients: how they begin, what they hold, and how they end."""

from __future__ import annotations

import asyncio
import json
from time import process_time

import pytest

from interlock import Context, Server
from interlock.auth.principal import Principal
from interlock.errors import ConnectionClosed
from interlock.server.http import legacy_session, sessions
from tests.server.http.conftest import Http
from tests.support.rows import each_row

# Beginning


async def test_session_begins_with_initialize_and_has_an_unguessable_id(http):
    one, other = await http.initialize(), await http.initialize()

    assert one.id != other.id
    assert len(one.id) >= 43  # 256 bits
    assert all(0x21 <= ord(letter) <= 0x7E for letter in one.id)
    assert len(http.app.sessions) == 2


@each_row("revision", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_each_legacy_revision_is_negotiated(http, revision):
    client = await http.initialize(revision)

    assert (await client.call("add", {"a": 1})).text == "2"
    assert (await client.ask("ping")).json["result"] == {}


async def test_refused_initialize_leaves_no_session(http):
    bad = [
        http.rpc("initialize", {}, id=1),
        http.rpc("initialize", {"protocolVersion": 7}, id=1),
        http.rpc("initialize", id=1),
        http.initialize_body()[:-5],
    ]
    for body in bad * 50:
        reply = await http.request("POST", body=body)
        assert reply.header("mcp-session-id") is None
        assert "error" in json.loads(reply.body)
    for headers in ({"host": "evil.example.com"}, {"content-type": "text/plain"}):
        assert (
            await http.request("POST", body=http.initialize_body(), headers=headers)
        ).code >= 400
    assert len(http.app.sessions) == 0


async def test_a_request_without_a_session_is_refused_with_a_hint_to_initialize(http):
    reply = await http.request("POST", body=http.rpc("tools/list", id=1))

    assert reply.code == 400
    assert "initialize" in reply.json["error"]["message"]


@each_row("id", ["unknown", "", "\xff", "x" * 10_000])
async def test_an_unknown_session_is_not_found(http, id):
    client = await http.initialize()
    client.headers["mcp-session-id"] = id

    assert (await client.ask("tools/list")).code == 404
    assert (await client.listen().finished()).code == 404
    assert (await client.delete()).code == 404


async def test_two_session_ids_are_refused(http):
    client = await http.initialize()
    body = http.rpc("ping", id=1)
    repeated = [("mcp-session-id", client.id), ("mcp-session-id", "other")]
    reply = await http.request("POST", body=body, repeated=repeated)

    assert reply.code == 400


async def test_get_and_delete_without_a_session_are_refused(http):
    for method in ("GET", "DELETE"):
        reply = await http.request(method)
        assert (reply.code, reply.header("allow")) == (405, "POST")


@each_row("version", ["2024-01-01", "nonsense", ""])
async def test_an_unsupported_version_is_refused(http, version):
    client = await http.initialize()
    client.headers["mcp-protocol-version"] = version

    assert (await client.ask("tools/list")).code == 400
    assert (await client.listen().finished()).code == 400
    assert (await client.delete()).code == 400


@each_row("version", ["2024-01-01", "nonsense", ""])
async def test_initialize_negotiates_the_revision_whatever_the_header_says(http, version):
    headers = {"mcp-protocol-version": version}
    reply = await http.request("POST", body=http.initialize_body(), headers=headers)

    assert reply.json["result"]["protocolVersion"] == "2025-06-18"


async def test_a_request_may_leave_the_version_out(http):
    client = await http.initialize("2025-03-26")
    del client.headers["mcp-protocol-version"]

    assert (await client.call("add", {"a": 1})).text == "2"


# Ending


async def test_a_session_can_be_ended_by_its_client(server, http, gate):
    client = await http.initialize()
    running, stream = client.begin_call("hold"), client.listen()
    await gate.entered.wait()
    assert await stream.status() == 200

    assert (await client.delete()).code == 204
    assert gate.cancelled.is_set() or await gate.cancelled.wait()
    await running.finished()
    assert (await stream.finished()).ended
    assert (await client.ask("tools/list")).code == 404
    assert (await client.delete()).code == 404
    assert len(http.app.sessions) == 0
    assert not server.subscribers._open


async def test_the_end_of_a_session_leaves_no_task(http):
    client = await http.initialize()
    before = asyncio.all_tasks()
    stream = client.listen()
    await stream.status()
    await client.delete()
    await stream.finished()
    await asyncio.sleep(0)

    assert asyncio.all_tasks() <= before


async def test_question_in_a_background_task_fails_when_the_session_ends(server, http):
    asking = []

    @server.tool
    async def wonder(context: Context) -> str:
        asking.append(asyncio.create_task(context.sample("hello", 10)))
        await asyncio.sleep(0)
        return await asyncio.get_running_loop().create_future()

    client = await http.initialize(capabilities={"sampling": {}})
    reply = client.begin_call("wonder")
    await reply.message()
    await client.delete()
    with pytest.raises(ConnectionClosed):
        await asking[0]
    await reply.finished()


async def test_questions_to_one_client_are_limited(http, monkeypatch):
    monkeypatch.setattr(legacy_session, "MAX_ASKED", 0)
    client = await http.initialize(capabilities={"sampling": {}})
    result = (await client.call("sample")).json["result"]

    assert result["isError"]


async def test_session_over_the_limit_is_refused_and_others_continue(make):
    http = make(max_sessions=2)
    client = await http.initialize()
    await http.initialize()
    reply = await http.request("POST", body=http.initialize_body())

    assert (reply.code, reply.header("retry-after")) == (503, "60")
    assert (await client.call("add", {"a": 1})).text == "2"
    await client.delete()
    await http.initialize()


@pytest.mark.slow("opens ten thousand sessions")
async def test_ten_thousand_idle_sessions_meet_the_limit_and_are_freed(make, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    http = make(max_sessions=10_000, session_idle=600.0)
    everyone = http.app.sessions
    for _ in range(10_000):
        everyone.add(everyone.make(None))
    assert (await http.request("POST", body=http.initialize_body())).code == 503

    now += 601.0
    client = await http.initialize()
    assert (len(everyone), client.id != "") == (1, True)


async def test_ten_thousand_sessions_of_as_many_principals_end_quickly(make):
    known = make().app.sessions
    for number in range(10_000):
        known.add(known.make(Principal(f"user-{number}")))
    began = process_time()
    known.close()

    assert process_time() - began < 0.5
    assert (len(known), known._owners) == (0, {})


async def test_a_session_that_is_used_or_listened_to_is_not_idle(make, gate, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    http = make(session_idle=600.0)
    used, running, listening, idle = [await http.initialize() for _ in range(4)]
    running.begin_call("hold")
    await gate.entered.wait()
    assert await listening.listen().status() == 200

    now += 400.0
    assert (await used.ask("ping")).code == 200
    now += 400.0
    http.app.sessions.expire()
    assert len(http.app.sessions) == 3
    assert (await used.ask("ping")).code == 200
    assert (await idle.ask("ping")).code == 404


async def test_session_with_an_unread_answer_is_not_idle(make, gate, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    http = make(session_idle=600.0)
    client = await http.initialize()
    reply = client.begin_call("tell_and_hold", progressToken=1)
    await reply.message()
    reply.stop_reading()
    gate.opened.set()
    session = http.app.sessions._open[client.id]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not session._running
    now += 601.0
    http.app.sessions.expire()
    assert len(http.app.sessions) == 1
    reply.read_again()

    assert (await reply.message())["result"]["content"][0]["text"] == "done"
    await reply.finished()


async def test_idle_sessions_are_freed_without_another_request(make, monkeypatch):
    rings = []
    http = make(session_idle=600.0)
    loop = asyncio.get_running_loop()
    original = loop.call_later
    monkeypatch.setattr(
        loop,
        "call_later",
        lambda delay, act, *a: rings.append((delay, act)) or original(delay, act, *a),
    )
    await http.initialize()
    assert any(500 < delay <= 600 and act == http.app.sessions._on_timer for delay, act in rings)

    monkeypatch.setattr(sessions, "monotonic", lambda: 1e12)
    http.app.sessions._on_timer()
    assert len(http.app.sessions) == 0


async def test_session_that_is_not_idle_yet_is_checked_again(make, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(sessions, "monotonic", lambda: now)
    http = make(session_idle=600.0)
    for _ in range(2):
        await http.initialize()
        now += 400.0
    http.app.sessions._on_timer()

    assert len(http.app.sessions) == 1
    assert http.app.sessions._timer is not None


# Owners


@pytest.fixture
def owned(make):
    async def verify(token: str) -> Principal | None:
        return Principal(token) if token.startswith("user-") else None

    return make(
        verify_token=verify, resource="http://127.0.0.1:8000/mcp", max_sessions_per_principal=2
    )


def bearer(name):
    return {"authorization": f"Bearer {name}"}


@each_row("member", ["id", "tenant", "key_id", "view"])
async def test_session_is_usable_only_with_the_principal_that_began_it(make, member):
    async def verify(token: str) -> Principal | None:
        return Principal(**{"id": "anna", token: "other"})

    http = make(verify_token=verify, resource="http://127.0.0.1:8000/mcp")
    client = await http.initialize(headers=bearer("groups"))
    assert (await client.ask("ping")).code == 200
    client.headers |= bearer(member)
    assert (await client.ask("ping", id=2)).code == 404
    assert (await client.listen().finished()).code == 404


async def test_session_has_the_scopes_of_its_newest_request(make, server):
    async def verify(token: str) -> Principal | None:
        return Principal("anna", scopes=frozenset({token}))

    @server.tool
    async def scopes(context: Context) -> str:
        return ",".join(context.principal.scopes)

    http = make(verify_token=verify, resource="http://127.0.0.1:8000/mcp")
    client = await http.initialize(headers=bearer("read"))
    client.headers |= bearer("write")
    assert (await client.call("scopes")).text == "write"


async def test_session_of_another_principal_is_not_found(owned):
    client = await owned.initialize(headers=bearer("user-a"))
    assert (await client.ask("ping")).code == 200

    client.headers |= bearer("user-b")
    unknown = await client.ask("ping", id=2)
    assert unknown.code == 404
    assert (await client.listen().finished()).body == unknown.body
    assert (await client.delete()).code == 404
    client.headers |= bearer("user-a")
    assert (await client.ask("ping")).code == 200


async def test_sessions_of_one_principal_are_limited(owned):
    first = await owned.initialize(headers=bearer("user-a"))
    await owned.initialize(headers=bearer("user-a"))
    full = await owned.request("POST", body=owned.initialize_body(), headers=bearer("user-a"))

    assert full.code == 503
    other = await owned.initialize(headers=bearer("user-b"))
    await first.delete()
    await owned.initialize(headers=bearer("user-a"))
    await other.delete()
    assert list(owned.app.sessions._owners) == ["/user-a"]  # none for principals without a session


# Beginning at once


async def test_simultaneous_initialize_requests_respect_the_session_limit():
    begun, all_begun, may_answer = 0, asyncio.Event(), asyncio.Event()

    def slow(handler):
        async def answer(request, context):
            nonlocal begun
            begun += 1
            if begun == 3:
                all_begun.set()
            await may_answer.wait()
            return await handler(request, context)

        return answer

    http = Http(Server("slow", middleware=[slow]).asgi(max_sessions=1))
    replies = [http.start("POST", body=http.initialize_body()) for _ in range(3)]
    await all_begun.wait()
    may_answer.set()
    codes = [(await each.finished()).code for each in replies]
    assert sorted(codes) == [200, 503, 503]

    assert (await http.request("POST", body=http.initialize_body())).code == 503
    assert begun == 3  # for whom there is no room, nothing is done
    await http.app.close()
