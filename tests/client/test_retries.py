"""What is done about a request over HTTP that failed, row by row, by a clock that does not run."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from interlock import aio, revisions
from interlock.client import retries
from interlock.client.retries import BUDGET, MAX_AUTHORIZATIONS, MAX_SILENCE, Retry, RetryPolicy
from interlock.errors import (
    AuthError,
    AuthRequired,
    ConnectionClosed,
    HttpError,
    InsufficientScope,
    InterlockError,
    LoginRequired,
    RemoteError,
    RemoteProtocolError,
    RequestTimeout,
    SessionExpired,
    StreamEnded,
    Unreachable,
)
from tests.support.bearer import BearerHeaders
from tests.support.rows import each_row

DEADLINE = 60.0
CALL = "tools/call"
CUT = StreamEnded("cut")
GONE = SessionExpired("who?")


class World(BearerHeaders):
    """What a client can do, each of which takes the time it is told to take.

    Attributes:
        now: Of the clock, in seconds.
        done: What was done, in order.
        takes: Seconds of each.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[Any] = []
        self.takes = 0.0
        self.refusal: AuthError | None = None
        self.refuses_ping: InterlockError | None = None
        self.cannot_renew: InterlockError | None = None
        self.recovery = RetryPolicy(self, self.renew, self.relist, self.refusal_of_ping)

    token = ""

    async def valid_token(self) -> str:
        return ""

    async def refresh_after(self, error: AuthError) -> None:
        self._do(error)
        if self.refusal is not None:
            raise self.refusal

    async def renew(self, connection: object) -> None:
        self._do(connection)
        if self.cannot_renew is not None:
            raise self.cannot_renew

    async def refusal_of_ping(self, connection: object) -> InterlockError | None:
        self._do(f"ping {connection}")
        return self.refuses_ping

    async def relist(self) -> None:
        self._do("relist")

    async def sleep(self, seconds: float) -> None:
        self.done.append(seconds)
        self.now += seconds

    def _do(self, what: object) -> None:
        self.done.append(what)
        self.now += self.takes

    def attempt(self, method: str = CALL, *, idempotent: bool = False) -> Retry:
        return self.recovery.attempt(
            method, idempotent=idempotent, sent=self.now, deadline=self.now + DEADLINE
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(retries, "monotonic", lambda: world.now)
    monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=world.sleep))
    monkeypatch.setattr(aio, "random", SimpleNamespace(random=lambda: 0.0))
    return world


async def is_raised(attempt: Retry, error: InterlockError) -> bool:
    """Whether there is nothing to be done."""
    try:
        await attempt.recover(error, "old")
    except InterlockError as raised:
        if raised is not error:
            raise
        return True
    return False


# Authorization


@pytest.mark.parametrize(
    "error",
    [AuthRequired("?", 401, ""), AuthError("no", 403, ""), InsufficientScope(("a",), "")],
    ids=["401", "403", "scope"],
)
async def test_unauthorized_request_gets_a_new_token_three_times(world: World, error: AuthError):
    attempt = world.attempt()
    for _ in range(MAX_AUTHORIZATIONS):
        assert not await is_raised(attempt, error)

    assert await is_raised(attempt, error)
    assert world.done == [error] * MAX_AUTHORIZATIONS


async def test_error_states_that_new_tokens_were_rejected(world: World):
    error = AuthRequired("h requires authentication (401): bad audience", 401, "")
    attempt = world.attempt()
    while not await is_raised(attempt, error):
        assert str(error) == "h requires authentication (401): bad audience"

    text = "; it has rejected 3 tokens of its own authorization server"
    assert str(error) == f"h requires authentication (401): bad audience{text}"


async def test_unauthorized_request_without_authorization_is_raised(world: World):
    nobody = RetryPolicy(None, world.renew, world.relist, world.refusal_of_ping)
    attempt = nobody.attempt(CALL, idempotent=True, sent=0, deadline=DEADLINE)
    assert await is_raised(attempt, AuthRequired("?", 401, ""))


async def test_reason_why_no_new_token_is_available_is_raised(world: World):
    world.refusal = LoginRequired("nobody is there")
    with pytest.raises(LoginRequired):
        await world.attempt().recover(AuthRequired("?", 401, ""), None)


async def test_login_time_does_not_count_against_the_deadline(world: World):
    world.takes = 300.0
    attempt = world.attempt()
    await attempt.recover(AuthRequired("?", 401, ""), None)

    assert attempt.deadline == DEADLINE + 300.0


# Sessions and eras


@pytest.mark.parametrize(
    "error",
    [GONE, *(RemoteError(code, "", None, 400) for code in (-32022, -32600, -32000))],
    ids=["expired", "-32022", "-32600", "-32000"],
)
async def test_lost_session_is_renewed_once(world: World, error: InterlockError):
    attempt = world.attempt()
    assert not await is_raised(attempt, error)
    assert world.done == ["old"]

    assert await is_raised(attempt, error)


@pytest.mark.parametrize(
    "error",
    [
        RemoteError(-32600, "", None, 200),
        RemoteError(-32602, "", None, 200),
        RemoteError(-32601, "", None, 404),
    ],
    ids=["-32600", "-32602", "404"],
)
async def test_error_before_the_first_answer_is_raised(world: World, error: InterlockError):
    assert await is_raised(world.attempt("tools/list"), error)
    assert world.done == []


def http(status: int, text: str = "no session") -> HttpError:
    return HttpError(f"url answered {status}: {text}", status)


LOST = [
    http(400),
    http(404),
    http(422),
    http(500),
    http(503),
    AuthRequired("no session", 401),
    RemoteError(-32001, "session expired", None, 410),
    RemoteError(-32602, "not initialized", None, 0),
]


@each_row("error", LOST)
async def test_refusal_is_a_lost_session_only_if_a_ping_is_refused_too(
    world: World, error: InterlockError
):
    world.done.clear()
    world.recovery.has_answered, world.refuses_ping = True, error
    assert not await is_raised(world.attempt(), error)
    assert world.done == ["ping old", "old"]

    world.done.clear()
    world.refuses_ping, world.refusal = None, LoginRequired("log in")
    with pytest.raises((type(error), LoginRequired)):
        await world.attempt().recover(error, "old")
    assert world.done[0] == "ping old"
    assert "old" not in world.done


@each_row(
    ("error", "refusal", "idempotent", "repeated"),
    [
        (http(500, "it broke"), http(500, "no session"), False, False),  # it may have run
        (http(500, "it broke"), http(500, "no session"), True, True),
        (http(502, "Bad Gateway"), http(502, "Bad Gateway"), False, False),  # of a proxy
        (http(400), AuthRequired("?", 401), False, False),
    ],
)
async def test_request_that_may_have_run_is_not_repeated_in_the_new_session(
    world: World,
    error: InterlockError,
    refusal: InterlockError,
    idempotent: bool,
    repeated: bool,
):
    world.done.clear()
    world.recovery.has_answered, world.refuses_ping = True, refusal

    assert await is_raised(world.attempt(idempotent=idempotent), error) is not repeated
    assert world.done == ["ping old", "old"]  # the next request finds a new session


@each_row(
    "error", [AuthError("no", 403, ""), http(429), http(301), RemoteError(-32600, "", None, 0)]
)
async def test_other_refusals_are_no_sign_of_a_lost_session(world: World, error: InterlockError):
    world.recovery.has_answered = True
    await is_raised(world.attempt(), error)
    assert not {"ping old", "old"} & {each for each in world.done if isinstance(each, str)}


async def test_session_that_cannot_be_renewed_leaves_the_first_error_unless_a_login_is_needed(
    world: World,
):
    world.recovery.has_answered, world.refuses_ping = True, http(500)
    world.cannot_renew = http(500, "down")
    assert await is_raised(world.attempt(), http(500))

    world.cannot_renew = LoginRequired("log in")
    with pytest.raises(LoginRequired):
        await world.attempt().recover(http(500), "old")


@pytest.mark.parametrize("strange", [True, False])
async def test_ambiguous_error_renews_the_session_if_a_ping_fails(world: World, strange: bool):
    error = RemoteError(-32602, "_meta is missing", None, 400)
    world.refuses_ping = error if strange else None
    attempt = world.attempt()

    assert await is_raised(attempt, error) is not strange
    assert world.done == ["ping old", *["old"] * strange]
    assert await is_raised(attempt, error)


async def test_request_past_its_deadline_is_not_retried(world: World):
    world.takes = DEADLINE
    assert await is_raised(world.attempt(), GONE)
    assert world.done == ["old"]


# Headers of tools


async def test_header_mismatch_lists_the_tools_again_once(world: World):
    mismatch = RemoteError(revisions.HEADER_MISMATCH, "Mcp-Param-X", None, 400)
    attempt = world.attempt()
    assert not await is_raised(attempt, mismatch)
    assert await is_raised(attempt, mismatch)
    assert world.done == ["relist"]

    assert await is_raised(world.attempt("tools/list"), mismatch)  # it has no such headers


# Asking again


async def test_busy_server_is_retried_after_the_time_that_it_names(world: World):
    attempt = world.attempt()
    busy = HttpError("busy", 429, 7.0)
    assert not await is_raised(attempt, busy)
    assert not await is_raised(attempt, busy)
    assert await is_raised(attempt, busy)
    assert world.done == [7.0, 7.0]


async def test_retry_after_beyond_the_deadline_is_raised(world: World):
    assert await is_raised(world.attempt(), HttpError("busy", 429, DEADLINE))
    assert world.done == []


async def test_pauses_double_and_are_jittered(world: World, monkeypatch: pytest.MonkeyPatch):
    for chance, pauses in ((0.0, [0.25, 0.5]), (1.0, [0.125, 0.25])):
        monkeypatch.setattr(aio, "random", SimpleNamespace(random=lambda c=chance: c))
        attempt = world.attempt()
        world.done.clear()
        for _ in pauses:
            assert not await is_raised(attempt, HttpError("busy", 429))
        assert world.done == pauses


@pytest.mark.parametrize("error", [*(HttpError("", s) for s in (502, 503, 504)), CUT], ids=repr)
async def test_request_that_may_have_run_is_retried_only_if_idempotent(
    world: World, error: InterlockError
):
    """R-25."""
    assert await is_raised(world.attempt(), error)
    assert world.done == []

    assert not await is_raised(world.attempt(idempotent=True), error)
    assert not await is_raised(world.attempt("resources/read"), error)


@each_row(
    "error",
    [
        *(HttpError("", status) for status in (200, 400, 404, 500)),
        *(kind("") for kind in (RequestTimeout, RemoteProtocolError, ConnectionClosed)),
    ],
)
async def test_errors_without_a_retry_rule_are_raised_at_once(world: World, error: InterlockError):
    assert await is_raised(world.attempt("tools/list", idempotent=True), error)
    assert world.done == []


async def test_unsent_request_is_retried_whatever_its_method(world: World):
    attempt = world.attempt()
    assert not await is_raised(attempt, Unreachable("refused"))
    assert not await is_raised(attempt, Unreachable("refused"))
    assert await is_raised(attempt, Unreachable("refused"))


async def test_silent_address_is_not_retried(world: World):
    attempt = world.attempt()
    world.now += MAX_SILENCE
    assert await is_raised(attempt, Unreachable("no answer to connecting"))


async def test_silence_is_measured_from_the_last_attempt(world: World):
    attempt = world.attempt()
    assert not await is_raised(attempt, HttpError("busy", 429, MAX_SILENCE))
    assert not await is_raised(attempt, Unreachable("refused"))


async def test_retry_budget_allows_one_request_in_ten(world: World):
    """R-45."""
    for _ in range(int(BUDGET)):
        assert not await is_raised(world.attempt(), HttpError("busy", 429))
    assert await is_raised(world.attempt(), HttpError("busy", 429))

    world.recovery.sent += 11
    assert not await is_raised(world.attempt(), HttpError("busy", 429))
    assert await is_raised(world.attempt(), HttpError("busy", 429))


async def test_cancelling_ends_the_pause(monkeypatch: pytest.MonkeyPatch):
    attempt = World().recovery.attempt(CALL, idempotent=False, sent=0, deadline=float("inf"))
    waiting = asyncio.create_task(attempt.recover(HttpError("busy", 429, 3600.0), None))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
