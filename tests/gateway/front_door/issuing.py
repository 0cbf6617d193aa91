"""A gateway's issuer of tokens without the gateway, in this process or as a program.

`issuing.py URL` reads one request a line and answers each with a line, so that tests have two
processes on one database. The time is part of each request.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import count
from types import SimpleNamespace
from typing import Any, Protocol

import msgspec
from msgspec import Struct

from interlock.auth.authorization_ring import AuthorizationRing
from interlock.auth.gateway_key import GatewayKey
from interlock.auth.key_ring import KeyRing
from interlock.auth.stored_authorization import StoredPerson
from interlock.gateway.front_door.client_authentication import ProvenClient
from interlock.gateway.front_door.clients import FrontClient
from interlock.gateway.front_door.door_parts import DoorParts
from interlock.gateway.front_door.request import OAuthError, Resources
from interlock.gateway.front_door.tokens import Decided, TokenIssuer
from interlock.store.authorizations import AuthorizationStore
from interlock.store.database.database import Database, open_database

CLIENT = ProvenClient(FrontClient(id="client", name="Client", redirects=("https://c.example/cb",)))
_now: ContextVar[int] = ContextVar("now", default=0)


class Request(Struct):
    """A request to an issuer: "redeem" or "refresh" with a form, or "call" with a token."""

    action: str
    sent: dict[str, str]
    now: int
    id: int = 0


class Issuing(Protocol):
    """Answers requests with the members of an answer, or with `{"error": …}`."""

    async def ask(self, request: Request) -> dict[str, Any]: ...


async def _nobody(*_: object) -> None:
    return None


async def _person(user: str, tenant: str) -> StoredPerson:
    return StoredPerson(user=user, scopes=("mcp:*",), tenant=tenant)


class LocalIssuer:
    """An issuer in this process."""

    def __init__(self, database: Database) -> None:
        secret = GatewayKey(bytes(range(32)))
        resources = Resources("https://tools.example.com/mcp", ())
        store, keys = AuthorizationStore(database), KeyRing()
        self.ring = AuthorizationRing(store, _person, secret, keys, wall=_now.get)
        rechecks: Any = SimpleNamespace(check=_nobody)
        recorder = SimpleNamespace(recording_client=lambda *_, **__: None)
        gateway: Any = SimpleNamespace(resources=lambda: resources, recorder=recorder)
        clients: Any = None
        self.tokens = TokenIssuer(
            DoorParts(
                store=store,
                ring=self.ring,
                keys=keys,
                secret=secret,
                clients=clients,
                rechecks=rechecks,
                gateway=gateway,
                wall=_now.get,
            )
        )

    async def code(self, decided: Decided, now: int) -> str:
        _now.set(now)
        person = StoredPerson(user=decided.authorization.user, scopes=decided.authorization.scopes)
        return await self.tokens.issue_code(decided, person)

    async def ask(self, request: Request) -> dict[str, Any]:
        _now.set(request.now)
        try:
            match request.action:
                case "redeem":
                    return await self.tokens.redeem(request.sent, CLIENT)
                case "refresh":
                    return await self.tokens.refresh(request.sent, CLIENT)
        except OAuthError as error:
            return {"error": error.text}
        await self.ring._step(True)  # as each gateway does within a second
        found = await self.ring.find(request.sent["token"].encode())
        await self.ring._write_uses()
        return {"valid": found is not None}


class RemoteIssuer:
    """An issuer in another process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self._ids = count()
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}

    async def ask(self, request: Request) -> dict[str, Any]:
        assert self._process.stdin is not None
        request = msgspec.structs.replace(request, id=next(self._ids))
        answer = self._waiting[request.id] = asyncio.get_running_loop().create_future()
        self._process.stdin.write(msgspec.json.encode(request) + b"\n")
        return await answer

    async def read(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            id, answer = msgspec.json.decode(line)
            self._waiting.pop(id).set_result(answer)
        for each in self._waiting.values():
            each.set_exception(EOFError("the issuer has ended"))


@asynccontextmanager
async def remote_issuer(url: str) -> AsyncIterator[RemoteIssuer]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.gateway.front_door.issuing", url),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    issuer = RemoteIssuer(process)
    reading = asyncio.create_task(issuer.read())
    try:
        yield issuer
    finally:
        process.stdin.close()
        await process.wait()
        await reading


async def _serve(url: str) -> None:
    database = await open_database(url)
    issuer, lines = LocalIssuer(database), asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)

    async def answer(line: bytes) -> None:
        request = msgspec.json.decode(line, type=Request)
        told = request.id, await issuer.ask(request)
        sys.stdout.buffer.write(msgspec.json.encode(told) + b"\n")
        sys.stdout.buffer.flush()

    async with asyncio.TaskGroup() as tasks:
        while line := await lines.readline():
            tasks.create_task(answer(line))
    await database.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
