"""Writes commands' changes to the database together with their audit records."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.config import Config
    from interlock.store import AuditWriter
    from interlock.store.database.claims import Claim
    from interlock.types import JsonObject

OPERATOR = "user:local"  # anyone who can open the database acts as the administrator


class Recorder:
    """Writes each change and its audit record in one transaction."""

    def __init__(self, writer: AuditWriter) -> None:
        self._writer = writer

    async def write(
        self, kind: str, body: JsonObject, claim: Claim | None, *, server: str = "", tool: str = ""
    ) -> None:
        """Write a change and its record.

        Args:
            kind: The audit record's kind.
            body: The audit record's other members.
            claim: The change; None to write the record alone.
            server: The server that the change concerns.
            tool: The address of the tool that the change concerns.
        """
        await self.write_all(kind, [(body, server, tool)], claim)

    async def write_all(
        self, kind: str, about: Iterable[tuple[JsonObject, str, str]], claim: Claim | None
    ) -> None:
        """Write a change and its records in one transaction.

        Args:
            kind: The kind of the records.
            about: The body, the server and the tool of each record.
            claim: The change; None to write records only.
        """
        import msgspec

        from interlock.store import AuditRecord

        records = [
            AuditRecord(
                kind,
                user=OPERATOR,
                server=server,
                tool=tool,
                body=msgspec.json.encode({"surface": "cli"} | body),
            )
            for body, server, tool in about
        ]
        await self._writer.append_all(records, claim)


@asynccontextmanager
async def open_recorder(config: Config) -> AsyncIterator[Recorder | None]:
    """Open the audit trail in the database of a configuration; None if the trail is off.

    Raises:
        StoreError: The database cannot be used.
        MissingExtra: A package that signs the trail is not installed.
    """
    from interlock.config.gateway_reading import resolve
    from interlock.store import AuditWriter
    from interlock.store.database.key_loading import load_key

    settings = resolve(config, os.environ)
    if settings.audit.mode == "off":
        yield None
        return
    location = settings.database or None
    secret = await load_key(location)
    secret.sign(b"")  # raises an error before the change if a package is missing
    async with AuditWriter.open(location, key=secret, settings=settings.audit) as writer:
        yield Recorder(writer)
