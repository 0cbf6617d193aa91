"""Calls of users who have not connected to the server yet, or whose login has ended."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from interlock.layers import login_questions
from tests.gateway.conftest import bearer
from tests.gateway.notes import Notes, User, reason, serving_notes
from tests.servers.authorization_server import always, refused
from tests.support.scripted_server import Json

URLS = {"elicitation": {"url": {}}}
ACCEPT, DECLINE = {"action": "accept"}, {"action": "decline"}


@pytest.fixture
async def notes() -> AsyncIterator[Notes]:
    async with serving_notes() as notes:
        yield notes


async def connected(gateway, notes: Notes, name: str) -> User:
    user = User(gateway, await gateway.key(name))
    done = await user.connect(await user.url())
    assert done.code == 200, done.body
    return user


@pytest.mark.slow("fills a database")
async def test_modern_client_is_asked_to_open_the_page_and_its_call_waits_for_the_login(
    running, notes: Notes
):
    async with running(notes=notes.entry()) as gateway:
        await connected(gateway, notes, "anna")  # so that the tools are listed
        bert = User(gateway, await gateway.key("bert"))
        asked = (await bert.call(capabilities=URLS)).json["result"]
        ((key, question),) = asked["inputRequests"].items()
        url = question["params"]["url"]
        params = {
            "name": "notes__who",
            "arguments": {},
            "requestState": asked["requestState"],
            "inputResponses": {key: ACCEPT},
        }
        waiting = gateway.http.begin(
            "tools/call", params, capabilities=URLS, headers=bearer(bert.key)
        )
        done = await bert.connect(url)
        answer = await waiting.finished()

    assert asked["resultType"] == "input_required"
    assert (question["method"], question["params"]["mode"]) == ("elicitation/create", "url")
    assert done.code == 200
    assert answer.text.startswith("access-2")


@pytest.mark.slow("fills a database")
async def test_legacy_client_is_asked_by_a_request_and_notified_of_the_end(running, notes: Notes):
    async with running(notes=notes.entry()) as gateway:
        await connected(gateway, notes, "anna")
        bert = User(gateway, await gateway.key("bert"))
        session = await gateway.http.initialize(capabilities=URLS, headers=bearer(bert.key))
        reply = session.begin_call("notes__who")
        question = await reply.message()
        await session.answer(question["id"], ACCEPT)
        await bert.connect(question["params"]["url"])
        told = [await reply.message()]
        while "result" not in told[-1]:
            told.append(await reply.message())
        *notifications, answer = told

    assert (question["method"], question["params"]["mode"]) == ("elicitation/create", "url")
    (complete,) = (
        each for each in notifications if each["method"] == "notifications/elicitation/complete"
    )
    assert complete["params"]["elicitationId"] == question["params"]["elicitationId"]
    assert answer["result"]["content"][0]["text"].startswith("access-2")


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("answer", [DECLINE, ACCEPT], ids=["declined", "never finished"])
async def test_user_who_does_not_log_in_gets_the_link_in_the_result(
    running, notes: Notes, answer: Json, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(login_questions, "LOGIN_TIMEOUT", 0.01)
    async with running(notes=notes.entry()) as gateway:
        await connected(gateway, notes, "anna")
        key = await gateway.key("bert")
        session = await gateway.http.initialize(capabilities=URLS, headers=bearer(key))
        reply = session.begin_call("notes__who")
        await session.answer((await reply.message())["id"], answer)
        result = (await reply.message())["result"]

    assert result["_meta"]["interlock/reason"]["code"] == "needs_login"
    assert "/connect/" in result["_meta"]["interlock/reason"]["url"]


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize("sharing", ["per_user", "per_session", "per_call"])
async def test_fifty_calls_with_a_refused_token_refresh_it_once(
    running, notes: Notes, sharing: str
):
    limits, server = {"perKey": {"concurrent": 50}}, notes.entry(sharing=sharing, pool={"max": 60})
    async with running({"limits": limits}, notes=server) as gateway:
        anna = await connected(gateway, notes, "anna")
        await anna.call("notes__sign_out")
        sessions = [{"interlock/session": str(number % 5)} for number in range(50)]
        replies = await asyncio.gather(*(anna.call(meta=each) for each in sessions))

    assert notes.count("refresh_token") == 1
    assert Counter(each.text[:8] for each in replies) == {"access-2": 50}


@pytest.mark.slow("fills a database")
async def test_two_gateways_on_one_database_refresh_once(running, notes: Notes):
    async with running(notes=notes.entry()) as first, running(notes=notes.entry()) as second:
        anna = await connected(first, notes, "anna")
        await second.assembly.services.keys.refresh()
        elsewhere = User(second, anna.key)
        await second.assembly.services.vault.refresh(patience=10)
        assert (await elsewhere.call()).text.startswith("access-1")
        await anna.call("notes__sign_out")
        replies = await asyncio.gather(
            *(each.call() for each in (anna, elsewhere) for _ in "12345")
        )

    assert {each.text[:8] for each in replies} == {"access-2"}
    assert notes.count("refresh_token") == 1


@pytest.mark.slow("fills a database")
async def test_login_that_cannot_be_refreshed_needs_a_login_and_its_tools_stay_listed(
    running, notes: Notes
):
    async with running(notes=notes.entry()) as gateway:
        anna = await connected(gateway, notes, "anna")
        await anna.call("notes__sign_out")
        notes.authorization.replies["/token"] = lambda _: _refuse("invalid_grant")
        ended = [reason(await anna.call()) for _ in range(2)]
        names = await gateway.names(anna.key)
        (listed,) = await gateway.assembly.services.vault.states("/user:anna", {})
        del notes.authorization.replies["/token"]
        await anna.connect(ended[1]["url"])
        answer = await anna.call()

    assert [each["code"] for each in ended] == ["needs_login"] * 2
    assert names == ["notes__who", "notes__sign_out"]
    assert listed["state"] == "needs_login"
    assert answer.text.startswith("access-2")


async def _refuse(error: str):
    return refused(error)


@pytest.mark.slow("fills a database")
async def test_authorization_server_that_is_down_does_not_demand_a_new_login(running, notes: Notes):
    async with running(notes=notes.entry()) as gateway:
        anna = await connected(gateway, notes, "anna")
        await anna.call("notes__sign_out")
        notes.authorization.replies["/token"] = always("down", 503)
        failed = await anna.call()
        del notes.authorization.replies["/token"]
        again = await anna.call()

    assert reason(failed)["code"] == "upstream_error"
    assert again.text.startswith("access-2")


@pytest.mark.slow("fills a database")
async def test_server_that_later_requires_a_login_is_used_with_each_users_own_login(
    running, notes: Notes
):
    async with running(notes=notes.entry(auth="auto")) as gateway:
        users = [await connected(gateway, notes, name) for name in ("anna", "bert")]
        answers = [(await each.call()).text[:8] for each in users]

    assert answers == ["access-1", "access-2"]


@pytest.mark.slow("fills a database")
async def test_subscription_at_a_server_of_users_is_refused_and_harms_no_call(
    running, notes: Notes
):
    async with running(notes=notes.entry()) as gateway:
        anna = await connected(gateway, notes, "anna")
        session = await gateway.http.initialize(headers=bearer(anna.key))
        refused = await session.ask("resources/subscribe", {"uri": "notes://mine"})
        answer = await anna.call()

    assert "error" in refused.json
    assert answer.text.startswith("access-1")


@pytest.mark.slow("fills a database")
async def test_resources_and_prompts_use_the_login_of_the_tools(running, notes: Notes):
    async with running(notes=notes.entry()) as gateway:
        anna = await connected(gateway, notes, "anna")
        headers = bearer(anna.key)
        read = await gateway.http.ask("resources/read", {"uri": "notes://mine"}, headers=headers)
        got = await gateway.http.ask("prompts/get", {"name": "notes__greet"}, headers=headers)

    assert read.json["result"]["contents"][0]["text"].startswith("access-1")
    assert got.json["result"]["messages"][0]["content"]["text"].startswith("access-1")


@pytest.mark.slow("fills a database")
async def test_nothing_of_the_callers_key_reaches_the_server_and_no_token_leaves_the_gateway(
    running, notes: Notes, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    caplog.set_level("DEBUG")
    headers = {"cookie": "canary-cookie", "x-canary": "canary-header", "forwarded": "for=canary"}
    async with running(notes=notes.entry()) as gateway:
        anna = await connected(gateway, notes, "anna")
        for name in ("X-API-Key", "Authorization"):
            value = anna.key if name == "X-API-Key" else f"Bearer {anna.key}"
            reply = await gateway.http.call("notes__who", headers={name.lower(): value, **headers})
            assert reply.text.startswith("access-1")
        notes.authorization.replies["/token"] = lambda _: _refuse("invalid_grant")
        await anna.call("notes__sign_out")
        failed = await anna.call()
        metrics = gateway.assembly.services.metrics.text()

    secret = anna.key.rpartition("_")[2]
    sent = [*notes.requests, *(each.headers for each in notes.authorization.requests)]
    bodies = [each.sent for each in notes.authorization.requests]
    for text in map(str, [*sent, *bodies]):
        assert secret not in text
        assert "canary" not in text
    token = "access-1-of-"
    for text in (caplog.text, failed.text, metrics, *contents(tmp_path)):
        assert token not in text


def contents(folder: Path) -> list[str]:
    return [each.read_bytes().decode("latin-1") for each in folder.iterdir() if each.is_file()]
