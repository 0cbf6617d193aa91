"""A database of each release opens, and becomes the same as a new one."""

from __future__ import annotations

import gzip
import re
from itertools import count
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, inspect, text

from interlock.auth import key_format
from interlock.config.gateway import Audit
from interlock.store import AuditReader, AuditRecord, ConversationStore, open_trail
from interlock.store.approvals import ApprovalStore
from interlock.store.authorizations import AuthorizationStore
from interlock.store.credentials import CredentialStore
from interlock.store.database.database import open_database
from interlock.store.database.key_owner import open_owned
from interlock.store.keys import KeyStore
from interlock.store.oauth_clients import OAuthClientStore
from interlock.store.pin import FORMAT
from interlock.store.pins import PinStore
from interlock.store.signed_in import SignedInStore
from tests.store.releases.contents import (
    APPROVAL,
    AUTHORIZATION,
    BLOCKED,
    FOLDER,
    KEY,
    PERSON,
    SECRET,
    offered,
)

_numbers = count()
KEPT = [
    pytest.param(file, marks=pytest.mark.program("PostgreSQL") if ".sql" in file.name else ())
    for file in sorted(FOLDER.glob("*.gz"))
]


@pytest.fixture(params=KEPT, ids=lambda file: file.name)
async def kept(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The location of a copy of the database that was kept of a release."""
    content = gzip.decompress(request.param.read_bytes())
    if ".db" in request.param.name:
        place = tmp_path / "kept.db"
        place.write_bytes(content)
        return str(place)
    url = await _new_database(request.getfixturevalue("postgres_server"))
    connection = await asyncpg.connect(url)
    await connection.execute(content.decode())
    await connection.close()
    return url


async def _new_database(server: str) -> str:
    name = f"release{next(_numbers)}"
    connection = await asyncpg.connect(server)
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return server.replace("/postgres?", f"/{name}?")


@pytest.fixture
async def new(kept: str, tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The location of a new database of the same kind."""
    if "://" not in kept:
        return str(tmp_path / "new.db")
    return await _new_database(request.getfixturevalue("postgres_server"))


async def structure(place: str) -> dict[str, Any]:
    """Return what a database has besides rows: columns, keys, indexes and triggers, by table."""
    database = await open_database(place)
    try:
        return await database.read(lambda each: each.run_sync(_structure))
    finally:
        await database.close()


def _structure(connection: Connection) -> set[tuple[object, ...]]:
    if connection.dialect.name == "postgresql":
        rows = [row for query in _POSTGRES for row in connection.execute(text(query))]
        # A dump and its source write the same condition with other casts and parentheses.
        casts = re.compile(r"::(character varying|text|bpchar)|[()\[\]]")
        return {tuple(casts.sub("", str(each)) for each in row) for row in rows}
    found: set[tuple[object, ...]] = set()
    master = "SELECT type, name, tbl_name, sql FROM sqlite_master"
    for kind, name, table, sql in connection.exec_driver_sql(master).all():
        if kind != "table":
            found.add((kind, name, table, " ".join((sql or "").split())))
            continue
        found.add((name, "WITHOUT ROWID" in sql))
        for pragma in ("table_xinfo", "foreign_key_list"):
            found |= {
                (name, pragma, *row[1:])  # without the place of the column
                for row in connection.exec_driver_sql(f"PRAGMA {pragma}({name})")
            }
    return found


_POSTGRES = (
    "SELECT table_name, column_name, data_type, is_nullable, column_default, is_generated,"
    " generation_expression FROM information_schema.columns WHERE table_schema = 'public'",
    "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint"
    " WHERE connamespace = 'public'::regnamespace",
)


async def test_kept_database_opens_with_all_that_is_in_it(kept: str):
    database = await open_owned(kept, KEY)
    try:
        values = await CredentialStore(database, KEY).values(SECRET.user, SECRET.server)
        (key,) = await KeyStore(database).list()
        approval = await ApprovalStore(database, KEY).get(APPROVAL.id)
        pins = await PinStore(database).list()
        authorizations = await AuthorizationStore(database).list()
        person = await SignedInStore(database, KEY).get(PERSON.user)
        decided = await OAuthClientStore(database).list()
    finally:
        await database.close()
    async with ConversationStore.open(kept) as store:
        (made,) = await store.list()
        messages = await store.resume(made.id)
        await store.append(made.id, messages[0])
        hits = await store.search("refund")
    async with open_trail(kept, KEY, Audit()) as trail:
        await trail.append(AuditRecord("intent", "c_3"))
    async with AuditReader.open(kept) as reader:
        verified = await reader.verify(KEY)

    assert key.hash == key_format.digest(values[SECRET.name])
    assert f"user:{key.user}" == SECRET.user
    assert (approval.state, approval.arguments) == ("approved", APPROVAL.arguments)
    assert {each.address for each in pins} >= {"crm", "crm:refund", "crm:greet", "orders:get_order"}
    assert authorizations == [AUTHORIZATION]
    assert person == (PERSON, "issuer's token")
    assert decided == [BLOCKED]
    assert [each.content for each in messages] == ["Refund order 7, please.", "Done."]
    assert len(hits) == 1
    assert verified.problems == []
    assert verified.records > 4


async def test_kept_database_becomes_the_same_as_a_new_one(kept: str, new: str):
    """If this fails, `tables.py` was changed without a new `REVISION`: see `schema_version.py`."""
    assert await structure(kept) == await structure(new)


async def test_columns_of_audit_records_never_change(kept: str):
    """Hash chains cover them, and programs of all versions write and read them."""
    database = await open_database(kept)
    try:
        columns = await database.read(
            lambda each: each.run_sync(lambda core: inspect(core).get_columns("audit"))
        )
    finally:
        await database.close()

    named = "writer seq at tenant kind call user key server tool status reason body hash"
    assert [each["name"] for each in columns] == named.split()


async def test_server_with_an_unchanged_definition_has_the_kept_pin_unless_the_format_is_newer(
    kept: str,
):
    """If this fails, definitions are written differently: raise `FORMAT` in `store/pin.py`."""
    database = await open_database(kept)
    try:
        pins = {(each.server, each.key): each for each in await PinStore(database).list()}
    finally:
        await database.close()
    found = await offered()

    for server, definitions in found.items():
        for each in definitions:
            pin = pins[server, (each.kind, each.name)]
            assert (pin.source or pin.hash) == (each.source or each.hash), pin.address
            assert pin.format < FORMAT or pin.hash == each.hash, pin.address
