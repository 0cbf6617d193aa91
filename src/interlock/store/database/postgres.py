"""Connections to PostgreSQL, and errors that never show the password."""

from __future__ import annotations

import os
import re
from typing import Any

from interlock.errors import MissingExtra, StoreError
from interlock.store.database import location
from interlock.store.database.error_mapping import POOLER

_PROCESS = "SELECT pg_backend_pid()"
_ATTEMPTS = 3  # because other clients of a pooler may use the processes in the meantime


def import_driver() -> Any:
    """Import the driver asyncpg, and return the module.

    Raises:
        MissingExtra: The extra `postgres`, which installs asyncpg, is missing.
    """
    try:
        import asyncpg  # type: ignore[import-untyped]  # ships no types
    except ModuleNotFoundError as error:
        raise MissingExtra("a PostgreSQL database", "postgres") from error
    return asyncpg


def driver_errors() -> tuple[type[Exception], ...]:
    """Return the errors of asyncpg, which may also raise an `OSError`: see `server_errors`."""
    asyncpg = import_driver()
    return (asyncpg.PostgresError, asyncpg.InterfaceError)


def server_errors() -> tuple[type[Exception], ...]:
    """Return the errors that are raised if the server refuses, fails or cannot be reached."""
    return (OSError, *driver_errors())


def _lock_timeout(seconds: float) -> str:
    return f"SET lock_timeout = {int(seconds * 1_000)}"


async def connect(url: str, *, timeout: float, command_timeout: float | None) -> Any:
    """Return a new asyncpg connection.

    Args:
        url: The URL of the server and database.
        timeout: Seconds to wait for the connection, and for another session's lock.
        command_timeout: Seconds to wait for the answer to each command; None for no limit.

    Raises:
        StoreError: The server cannot be reached or refuses the connection.
    """
    asyncpg = import_driver()
    name = location.public_name(url)
    try:
        connection = await asyncpg.connect(
            url,
            timeout=timeout,
            command_timeout=command_timeout,
            server_settings={"application_name": "interlock"},
        )
        # Not one of the settings above, because PgBouncer refuses those that it does not know.
        # Not a statement with a parameter either, because a pooler of statements breaks those.
        await connection.execute(_lock_timeout(timeout))
        return connection
    except ValueError:
        # Drop the driver's text, because it may contain the URL with the password.
        raise StoreError(f"{name}: the URL is not a valid postgresql:// URL") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        raise StoreError(f"cannot connect to {name}: {_reason(error, timeout)}") from error


def _reason(error: Exception, timeout: float) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return f"no answer within {timeout:g} s; check the URL and the server"
    if number := re.search(r"\[Errno (-?\d+)\]", str(error)):  # of the first address of several
        code = int(number[1])
        words = os.strerror(code) if code > 0 else "its name has no address"
        return f"{words}; start the server, or correct the URL"
    return str(error).partition("\n")[0] or type(error).__name__


async def refuse_transaction_pooler(url: str, *, timeout: float) -> None:
    """Check that two open connections always have different processes of the server.

    Raises:
        StoreError: A pooler gives them the same process in turn, or they cannot be opened.
    """
    options = {"timeout": timeout, "command_timeout": timeout}
    first, second = await connect(url, **options), await connect(url, **options)
    try:
        for _ in range(_ATTEMPTS):
            before = await _process_of(first)
            async with second.transaction():
                is_shared = await second.fetchval(_PROCESS) == before
                if is_shared or await _process_of(first) != before:
                    raise StoreError(f"{location.public_name(url)} {POOLER}")
    finally:
        first.terminate()
        second.terminate()


async def _process_of(connection: Any) -> int:
    async with connection.transaction():
        found: int = await connection.fetchval(_PROCESS)
        return found
