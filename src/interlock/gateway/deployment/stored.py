"""Checks of what the database contains, and of its server. They only read it."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from time import time

from msgspec import Struct

from interlock.aio import in_thread
from interlock.auth.gateway_key import FILE_NAME, VARIABLE, GatewayKey
from interlock.config.gateway import Audit
from interlock.errors import ConfigError, InterlockError
from interlock.gateway.deployment.check_result import CheckResult, error, ok, warning
from interlock.gateway.gauges import EXPIRING
from interlock.store.audit.copies import copy_folder
from interlock.store.audit.postgres_tables import PostgresAudit
from interlock.store.database.claims import Row
from interlock.store.database.disk_reserve import RESERVE, free_bytes
from interlock.store.database.location import public_name, without_links
from interlock.store.database.sqlite_file import CHECK_PAGES, log_of, uri
from interlock.store.replicas import TIMEOUT
from interlock.text.timestamps import now_micros, rfc3339

MAX_CLOCK = 5.0  # seconds that the clocks of a gateway and of its database may differ
_PAGES = "PRAGMA page_count"
_TABLES = ("gateway_key", "keys", "audit")
_OWNER = "SELECT fingerprint FROM gateway_key"
_KEYS = 'SELECT id, "user", expires FROM keys WHERE revoked IS NULL ORDER BY expires, id'
_LAST = "SELECT max(at) FROM audit"
_POSTGRES = (
    "SELECT current_setting('server_version'), extract(epoch FROM clock_timestamp())::float8,"
    " pg_database_size(current_database()), pg_is_in_recovery()"
)
_POSTGRES_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
_SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"

Fetch = Callable[[str], Awaitable[list[Row]]]


class Stored(Struct, frozen=True):
    """The contents of a database that matter for a deployment; empty without tables.

    Attributes:
        results: The results of the checks of the database and its clock.
        owner: The fingerprint of the key that the database belongs to; "" for none.
        keys: The id, user and end of each key that is not revoked; ends in microseconds.
        last_record: When the last audit record was written, in microseconds; None for never.
        is_read: Whether the database could be read.
    """

    results: tuple[CheckResult, ...]
    owner: str = ""
    keys: tuple[tuple[str, str, int | None], ...] = ()
    last_record: int | None = None
    is_read: bool = True


def _unread(problem: str) -> Stored:
    return Stored((error("database", problem),), is_read=False)


async def look_at(place: str | Path) -> Stored:
    """Read a database, which another user or a gateway may be using."""
    if isinstance(place, Path) and not place.exists():  # noqa: ASYNC240 - nothing else runs
        return Stored((ok("database", f"{place} is created at the first start"),))
    try:
        return await (_postgres(place) if isinstance(place, str) else _sqlite(without_links(place)))
    except InterlockError as found:
        return _unread(str(found))
    except sqlite3.Error as found:
        return _unread(f"{place} cannot be read ({found}); check its owner, or restore a backup")


async def _sqlite(file: Path) -> Stored:
    # Without a log, no process is writing, and this one must not make a log.
    options = {"mode": "ro"} if log_of(file).exists() else {"mode": "ro", "immutable": "1"}

    def fetch(sql: str) -> list[Row]:
        with closing(sqlite3.connect(uri(file, **options), uri=True)) as connection:
            return connection.execute(sql).fetchall()

    async def fetched(sql: str) -> list[Row]:
        return await in_thread(lambda: fetch(sql))

    ((pages,),), ((size,),) = await fetched(_PAGES), await fetched("PRAGMA page_size")
    about = f"{file}, SQLite {sqlite3.sqlite_version}, {pages * size:,} bytes"
    if pages <= CHECK_PAGES and await fetched("PRAGMA quick_check(1)") != [("ok",)]:
        return _unread(f"{about}, is damaged: restore a backup")
    return await _contents(fetched, _SQLITE_TABLES, about, ())


async def _postgres(url: str) -> Stored:
    tables = PostgresAudit(url, timeout=TIMEOUT)
    try:
        await tables.fetch("SELECT 1")  # connects, which must not be a part of the time below
        before = time()
        ((version, now, size, is_standby),) = await tables.fetch(_POSTGRES)
        behind = (before + time()) / 2 - now
        about = f"{public_name(url)}, version {version.split()[0]}, {size:,} bytes"
        if is_standby:
            return _unread(f"{about}, is a read-only standby: use the primary")
        skew = f"the clock of this machine and the database's differ by {abs(behind):.1f} s"
        is_off = abs(behind) > MAX_CLOCK
        clock = warning("clock", f"{skew}; set both by NTP") if is_off else ok("clock", skew)
        return await _contents(tables.fetch, _POSTGRES_TABLES, about, (clock,))
    finally:
        await tables.close()


async def _contents(
    fetch: Fetch, tables: str, about: str, further: tuple[CheckResult, ...]
) -> Stored:
    names = {name for (name,) in await fetch(tables)}
    if not names.issuperset(_TABLES):
        found = ok("database", f"{about}, without tables: the first start creates them")
        return Stored((found, *further))
    owner = await fetch(_OWNER)
    ((last,),) = await fetch(_LAST)
    keys = tuple((str(id), str(user), end) for id, user, end in await fetch(_KEYS))
    results = (ok("database", about), *further)
    return Stored(results, owner[0][0] if owner else "", keys, last)


def check_owner(stored: Stored, folder: Path) -> Iterator[CheckResult]:
    """Check that the database belongs to the gateway's key; yield nothing if it has no owner."""
    if not stored.owner:
        return
    way_out = f"set the same {VARIABLE}, or put that key into {folder / FILE_NAME}"
    if not GatewayKey.exists(folder):
        text = f"the database belongs to gateway key {stored.owner[:8]}, which is missing"
        yield error("owner", f"{text}; {way_out}")
        return
    with suppress(ConfigError):  # which `check_key` reports
        key = GatewayKey.load(folder)
        if key.fingerprint == stored.owner:
            yield ok("owner", f"the database belongs to gateway key {key.id}")
        else:
            text = f"the database belongs to gateway key {stored.owner[:8]}, not to {key.id}"
            yield error("owner", f"{text}; {way_out}")


def check_keys(stored: Stored) -> Iterator[CheckResult]:
    """Check that no API key ends soon; yield nothing if the keys are not known."""
    if not stored.is_read:
        return
    now = now_micros()
    valid = [each for each in stored.keys if each[2] is None or each[2] > now]
    ending = [each for each in valid if each[2] is not None and each[2] <= now + EXPIRING]
    if ending:
        shown = [f"{id} of {user} ({rfc3339(end)})" for id, user, end in ending[:5]]
        more = f" and {len(ending) - 5} more" if len(ending) > 5 else ""
        text = f"keys end within seven days: {', '.join(shown)}{more}; interlock keys rotate ID"
        yield warning("keys", text)
    else:
        yield ok("keys", f"{len(valid)} valid")


def check_audit(settings: Audit, stored: Stored, location: str) -> CheckResult:
    """Check that calls are recorded, and that the folder of the copy has room for them."""
    if settings.mode == "off":
        return error("audit", 'gateway.audit.mode is "off", which is for `serve --stdio` only')
    copy = copy_folder(settings, location or None)
    if copy.exists() and not os.access(copy, os.W_OK | os.X_OK):
        text = f"the copy's folder {copy} cannot be written; change its owner or the mount"
        return error("audit", text)
    if copy.exists() and (free := free_bytes(copy)) < RESERVE:
        text = f"{free:,} bytes are free in the copy's folder {copy}; free some"
        return error("audit", f"{text}: records that do not fit stay missing in the copy")
    never = "none" if stored.is_read else "not known"
    last = never if stored.last_record is None else rfc3339(stored.last_record)
    return ok("audit", f"{settings.mode}; last record: {last}")
