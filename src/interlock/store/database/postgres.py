"""Connections to PostgreSQL, and errors that never show the password."""

from __future__ import annotations

from typing import Any

from interlock.errors import MissingExtra, StoreError
from interlock.store.database import location


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


async def connect(url: str, *, timeout: float, command_timeout: float) -> Any:
    """Return a new asyncpg connection.

    Args:
        url: The URL of the server and database.
        timeout: Seconds to wait for the connection, and for another session's lock.
        command_timeout: Seconds to wait for the answer to each command.

    Raises:
        StoreError: The server cannot be reached or refuses the connection.
    """
    asyncpg = import_driver()
    name = location.public_name(url)
    try:
        return await asyncpg.connect(
            url,
            timeout=timeout,
            command_timeout=command_timeout,
            server_settings={
                "application_name": "interlock",
                "lock_timeout": str(int(timeout * 1000)),
            },
        )
    except ValueError:
        # Drop the driver's text, because it may contain the URL with the password.
        raise StoreError(f"{name}: the URL is not a valid postgresql:// URL") from None
    except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
        silent = isinstance(error, TimeoutError) and not str(error)
        words = f"no answer within {timeout:g} s" if silent else str(error)
        reason = words.partition("\n")[0] or type(error).__name__
        raise StoreError(f"cannot connect to {name}: {reason}") from error
