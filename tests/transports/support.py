"""An authorization and shorthands for requests of an endpoint."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from interlock.errors import AuthError
from interlock.transports.http_endpoint import HttpEndpoint
from interlock.transports.http_pool import HttpPool
from tests.support.bearer import BearerHeaders

SECRET = "canary"


BODY = b'{"jsonrpc":"2.0","id":1,"method":"x"}'


def to(url: str, pool: HttpPool, *, max_bytes: int = 1000, **more: Any) -> HttpEndpoint:
    return HttpEndpoint(url, pool, more.get("headers"), more.get("authorization"), max_bytes)


class Tokens(BearerHeaders):
    def __init__(self, token: str, fresh: str | AuthError = "") -> None:
        self.token = token
        self._fresh = fresh

    async def valid_token(self) -> str:
        if isinstance(self._fresh, AuthError):
            raise self._fresh
        self.token = self._fresh
        return self.token

    async def refresh_after(self, error: AuthError) -> None:
        raise error


class Uncopied(list[bytes]):
    """Frames that cannot be joined for lack of memory."""

    tries = 0

    def __iter__(self) -> Iterator[bytes]:
        self.tries += 1
        if self.tries == 1:
            raise MemoryError
        return super().__iter__()
