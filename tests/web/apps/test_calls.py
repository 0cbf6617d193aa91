"""Apps of servers: tickets for their documents, whose they are, and calls that wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import Raw

from interlock.calls import LOCAL, Call, Item, Outcome
from interlock.server.http.json_api import Problem
from interlock.web.apps import calls as app_calls
from interlock.web.apps.calls import AppCall, AppCalls

# Calls that wait

RAN, REFUSED = Raw(b'{"content":[]}'), Raw(b'{"content":[],"isError":true}')


def made(arguments: dict[str, Any], owner: str = "anna") -> AppCall:
    return AppCall("app", owner, Call(Item("tools", "desk", "delete"), arguments, LOCAL))


async def ask_first(call: Call) -> Outcome:
    """Run a call as a policy does that asks about each."""
    assert isinstance(call.back, AppCall)
    is_allowed = await call.back.approve(call, None)
    return Outcome(RAN if is_allowed else REFUSED)


async def test_decision_applies_only_to_the_call_that_was_shown():
    call = made({"name": "plan"})
    call.begin(ask_first)
    asked = (await call.shown("", 5))["asked"]
    for hash in ("", made({"name": "all"}).call.id, asked["hash"][:-1]):
        with pytest.raises(Problem, match="not the call that was shown"):
            call.decide(hash, True)
    call.decide(asked["hash"], True)
    with pytest.raises(Problem, match="no decision any more"):
        call.decide(asked["hash"], False)

    assert (await call.shown(asked["hash"], 5))["result"] == RAN


async def test_call_of_an_app_is_found_by_its_user_and_its_app_only():
    calls, call = AppCalls(), made({})
    call.begin(ask_first)
    calls.add(call)

    assert calls.find("anna", "app", call.call.id) is call
    for owner, app in (("bert", "app"), ("anna", "other")):
        with pytest.raises(Problem, match="no such call"):
            calls.find(owner, app, call.call.id)
    await calls.close()
    assert call.is_over


async def test_call_without_a_decision_ends_in_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app_calls, "ANSWER_WITHIN", 0.0)
    call = made({})
    call.begin(ask_first)
    asked = (await call.shown("", 5))["asked"]

    with pytest.raises(Problem, match="it was not approved in time"):
        await call.shown(asked["hash"], 5)


async def test_app_has_a_limited_number_of_calls_at_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(app_calls, "MAX_OF_ONE", 1)
    calls, call = AppCalls(), made({})
    calls.add(call)
    call.begin(ask_first)

    with pytest.raises(Problem, match=r"too many calls at once \(limit 1\)"):
        calls.add(made({}))
    call.decide((await call.shown("", 5))["asked"]["hash"], False)
    await asyncio.sleep(0)
    await call.shown("", 5)
    calls.add(made({}))  # the other one is over
    await calls.close()


async def test_call_over_the_limit_replaces_an_ended_call_or_one_of_the_same_user(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(app_calls, "MAX_CALLS", 3)
    calls = AppCalls()
    waiting, first, ended, second, third = (
        made({}, owner) for owner in ("bert", "anna", "anna", "anna", "anna")
    )
    for each in (waiting, first, ended, second, third):
        calls.add(each)
        each.begin(ask_first)
        asked = (await each.shown("", 5))["asked"]
        if each is ended:
            each.decide(asked["hash"], True)
            await each.shown(asked["hash"], 5)

    assert [*calls._calls.values()] == [waiting, second, third]
    assert not waiting.is_over
    await calls.close()
