"""The front door of two gateways on one database, while one of them is killed."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import aiohttp
import pytest

from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.database import open_database
from tests.chaos.fleet import Fleet, Replica, fleet, free_port, until
from tests.servers.postgres import Postgres

pytestmark = [pytest.mark.product, pytest.mark.program("PostgreSQL"), pytest.mark.timeout(300)]

REDIRECT = "https://client.example.com/callback"
VERIFIER = "v" * 43
LOGINS = 20  # as many as one person may have at one client
REFRESHES = 200  # in a second


class Visitor:
    """A person and a client, in front of the gateways."""

    def __init__(self, here: Fleet, public: str, key: str) -> None:
        self._here = here
        self._public = public
        self._key = key
        self._host = urlsplit(public).netloc
        self._client = ""

    async def post(self, at: Replica, path: str, **sent: Any) -> tuple[int, Any]:
        headers = {"host": self._host, **sent.pop("headers", {})}
        url = at.url.removesuffix("/mcp") + path
        async with self._here.http.post(url, headers=headers, **sent) as reply:
            return reply.status, json.loads(await reply.read() or b"{}")

    async def code(self, at: Replica) -> str:
        """Sign in and allow at a gateway; return the code."""
        origin = self._public.removesuffix("/mcp")
        if not self._client:
            told = {"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"}
            _, made = await self.post(at, "/register", json=told)
            self._client = made["client_id"]
        headers = {"origin": origin, "host": self._host}
        url = at.url.removesuffix("/mcp") + "/api/login"
        async with self._here.http.post(url, json={"key": self._key}, headers=headers) as reply:
            cookie = reply.headers["set-cookie"].partition(";")[0]
            page_key = (await reply.json())["pageKey"]
        session = {"cookie": cookie, "x-interlock-key": page_key, "origin": origin}
        challenge = urlsafe_b64encode(sha256(VERIFIER.encode()).digest()).decode()
        asked = {
            "response_type": "code",
            "client_id": self._client,
            "redirect_uri": REDIRECT,
            "code_challenge": challenge.rstrip("="),
            "code_challenge_method": "S256",
        }
        query = {"query": urlencode(asked)}
        _, shown = await self.post(at, "/api/authorize", json=query, headers=session)
        decision = {**query, "seen": shown["seen"], "allow": True}
        _, decided = await self.post(at, "/api/authorize/decide", json=decision, headers=session)
        return dict(parse_qsl(urlsplit(decided["location"]).query))["code"]

    async def token(self, at: Replica, **form: str) -> tuple[int, Any]:
        return await self.post(at, "/token", data={"client_id": self._client, **form})

    async def redeem(self, at: Replica, code: str) -> Any:
        form = {"code": code, "redirect_uri": REDIRECT, "code_verifier": VERIFIER}
        status, answer = await self.token(at, grant_type="authorization_code", **form)
        assert status == 200, answer
        return answer

    async def refresh(self, at: Replica, token: str) -> tuple[int, Any]:
        return await self.token(at, grant_type="refresh_token", refresh_token=token)

    async def revoke(self, at: Replica, token: str) -> None:
        form = {"client_id": self._client, "token": token}
        assert (await self.post(at, "/revoke", data=form))[0] == 200


@asynccontextmanager
async def two_gateways(folder: Path, url: str) -> AsyncIterator[tuple[Fleet, Visitor]]:
    public = f"http://127.0.0.1:{free_port()}/mcp"
    settings = {"publicUrl": public, "auth": {"oauth": {}}}
    async with fleet(folder, url, settings, callers=1) as here:
        await here.start(2)
        yield here, Visitor(here, public, here.keys[0])


async def test_login_goes_on_at_the_other_gateway_and_ends_at_both(
    tmp_path: Path, postgres: Postgres
):
    async with two_gateways(tmp_path, postgres.url) as (here, visitor):
        one, other = here.replicas
        late: list[float] = []
        for _ in range(LOGINS):
            first = await visitor.redeem(other, await visitor.code(one))
            at_both = [visitor.refresh(at, first["refresh_token"]) for at in (one, other) * 5]
            answers = await asyncio.gather(*at_both)
            assert {status for status, _ in answers} == {200}
            assert len({answer["refresh_token"] for _, answer in answers}) == 1
            access = answers[0][1]["access_token"]
            for at in here.replicas:
                assert (await here.call(at.url, access, "x"))[0] == 200
            await visitor.revoke(one, answers[0][1]["refresh_token"])
            began = monotonic()

            async def is_refused(access: str = access) -> bool:
                return (await here.call(other.url, access, "x"))[0] == 401

            assert (await here.call(one.url, access, "x"))[0] == 401
            await until(is_refused)
            late.append(monotonic() - began)
        print(f"revocation reached the other gateway after {max(late):.2f} s at most")
        assert max(late) < 1


async def test_killed_gateway_loses_no_authorization_and_makes_no_second_successor(
    tmp_path: Path, postgres: Postgres
):
    async with two_gateways(tmp_path, postgres.url) as (here, visitor):
        one, other = here.replicas
        tokens = [
            (await visitor.redeem(other, await visitor.code(one)))["refresh_token"]
            for _ in range(LOGINS)
        ]
        successors: dict[str, set[str]] = {}
        answered, failed, is_over = 0, 0, False

        async def client(number: int) -> None:
            nonlocal answered, failed
            choose = random.Random(number)
            while not is_over:
                await asyncio.sleep(LOGINS / REFRESHES * choose.random())
                token, at = tokens[number], choose.choice(here.replicas)
                try:
                    status, answer = await visitor.refresh(at, token)
                except aiohttp.ClientError:  # the client tries again with the same token
                    failed += 1
                    continue
                assert status == 200, answer
                successors.setdefault(token, set()).add(answer["refresh_token"])
                tokens[number] = answer["refresh_token"]
                answered += 1

        async def have(count: int) -> None:
            async def are_made() -> bool:
                return answered >= count

            await until(are_made)

        async with asyncio.TaskGroup() as tasks:
            for number in range(LOGINS):
                tasks.create_task(client(number))
            for round in range(1, 4):
                await have(round * 300)
                one.signal(signal.SIGKILL)
                await one.ended()
                await have(round * 300 + 100)
                one.start()
                await one.ready()
            is_over = True
        print(f"{answered} refreshes were answered, {failed} were not")
        assert failed
        assert {len(each) for each in successors.values()} == {1}
        for at, token in zip(here.replicas * LOGINS, tokens, strict=False):
            status, answer = await visitor.refresh(at, token)
            assert status == 200, answer
            assert (await here.call(at.url, answer["access_token"], "x"))[0] == 200
        database = await open_database(postgres.url)
        stored = await AuthorizationStore(database).list()
        await database.close()
        assert [each.reason for each in stored] == [""] * LOGINS
