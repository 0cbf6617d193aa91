"""A trail in a database that another program changed: verified, listed and exported to its end."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import msgspec
import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.store import AuditReader, AuditRecord, AuditWriter
from interlock.store.audit.postgres_tables import PostgresAudit
from interlock.store.audit.reading import CallFilter

KEY = GatewayKey(bytes(range(32)))
CALLS = [f"c{number}" for number in range(4)]
LENGTH = 2 * len(CALLS)
HEAD = "the head was changed: invalid"


async def write(place: str) -> str:
    """Write calls; return the writer."""
    async with AuditWriter.open(place, key=KEY) as writer:
        for call in CALLS:
            names = (call, "user:anna", "abcd", "crm", "crm:refund")
            await writer.append(AuditRecord("intent", *names, body=b'{"risk":"read"}'))
            await writer.append(AuditRecord("outcome", *names, status="ok", body=b'{"ms":1.5}'))
        return writer.id


@pytest.fixture
async def trail(sqlite_place: str) -> tuple[str, str]:
    """The database of a trail, and its writer."""
    return sqlite_place, await write(sqlite_place)


def change(place: str, sql: str) -> None:
    with closing(sqlite3.connect(place)) as database, database:
        database.execute(sql)


async def problems(place: str) -> list[tuple[str, int, str]]:
    async with AuditReader.open(place) as reader:
        found = await reader.verify(KEY)
    assert msgspec.json.encode(found.as_json())
    return [tuple(each) for each in found.problems]  # type: ignore[misc]


async def lists(place: str) -> tuple[list[str], list[str]]:
    """Return the listed calls and the exported records; damaged ones with an exclamation mark."""
    async with AuditReader.open(place) as reader:
        calls = await reader.calls(CallFilter())
        calls += await reader.calls(CallFilter(status="running"))
        calls += await reader.calls(CallFilter(status="unfinished"))
    async with AuditReader.open(place) as reader:
        records = [each async for piece in reader.export() for each in piece]
    assert msgspec.json.encode([calls, records])
    return (
        [f"{each.get('call')}{'!' * ('damaged' in each)}" for each in calls],
        [f"{each.get('seq')}{'!' * ('damaged' in each)}" for each in records],
    )


BAD_TEXT = "CAST(x'ff' AS TEXT)"
RECORDS = [
    ("hash", "'x'", [(5, "was changed: invalid hash")]),
    ("hash", "7", [(5, "was changed: invalid hash")]),
    ("body", "x'ff'", [(5, "was changed: invalid body")]),
    ("body", BAD_TEXT, [(5, "was changed: invalid body")]),
    ("body", "'not json'", [(5, "was changed, or does not follow the record before it")]),
    ("user", BAD_TEXT, [(5, "was changed: invalid user")]),
    ("key", "x'69b71d'", [(5, "was changed: invalid key")]),  # in JSON it is the same: "abcd"
    ("at", "'noon'", [(5, "was changed: invalid at")]),
    ("at", "1.5", [(5, "was changed: invalid at")]),
    ("at", "1e300", [(5, "was changed: invalid at")]),
    ("at", BAD_TEXT, [(5, "was changed: invalid at")]),
]


@pytest.mark.parametrize(("column", "value", "expected"), RECORDS)
async def test_record_with_a_value_of_another_type_is_named_and_shown_as_damaged(
    trail: tuple[str, str], column: str, value: str, expected: list[tuple[int, str]]
):
    place, writer = trail
    change(place, f'UPDATE audit SET "{column}" = {value} WHERE seq = 5')

    assert await problems(place) == [(writer, *each) for each in expected]
    calls, exported = await lists(place)
    assert sorted(calls) == ["c0", "c1", "c2!", "c3"]
    assert exported == [f"{seq}{'!' * (seq == 5)}" for seq in range(1, LENGTH + 1)]
    async with AuditReader.open(place) as reader:
        records = {each["kind"]: each for each in await reader.records("c2")}
    assert records["intent"]["damaged"] == [column]
    assert "damaged" not in records["outcome"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [("'abc'", "abc"), ("x'ff'", "x'ff'"), (BAD_TEXT, r"\xff"), ("5.5", "5.5"), ("-1", "-1")],
)
async def test_record_with_an_invalid_number_is_named_and_exported(
    trail: tuple[str, str], value: str, shown: str
):
    place, writer = trail
    change(place, f"UPDATE audit SET seq = {value} WHERE seq = 5")

    assert sorted(await problems(place)) == [
        (writer, 0, f"has a record with the invalid number {shown}"),
        (writer, 5, "is missing"),
    ]
    calls, records = await lists(place)
    assert calls == ["c3", "c2!", "c1", "c0"]
    assert sorted(records) == sorted(["1", "2", "3", "4", "6", "7", "8", f"{shown}!"])


@pytest.mark.parametrize(("value", "shown"), [("x'ff'", "x'ff'"), (BAD_TEXT, r"\xff"), ("''", "")])
async def test_record_of_an_invalid_writer_is_named_and_exported(
    trail: tuple[str, str], value: str, shown: str
):
    place, writer = trail
    change(place, f"UPDATE audit SET writer = {value} WHERE seq = 5")

    found = await problems(place)

    assert (writer, 5, "is missing") in found
    assert (shown, 0, "has records but no head") in found
    assert len((await lists(place))[1]) == LENGTH


@pytest.mark.parametrize("value", ["'x'", "1.5", BAD_TEXT])
@pytest.mark.parametrize(
    "column", ["hash", "signature", "seq", "base_seq", "ended", "started", "open_seq"]
)
async def test_head_with_a_value_of_another_type_is_named(
    trail: tuple[str, str], column: str, value: str
):
    place, writer = trail
    change(place, f"UPDATE audit_heads SET {column} = {value}")

    assert await problems(place) == [(writer, 0, f"{HEAD} {column}")]
    assert len((await lists(place))[1]) == LENGTH


async def test_invalid_writer_of_a_head_is_named(trail: tuple[str, str]):
    place, writer = trail
    change(place, f"UPDATE audit_heads SET writer = {BAD_TEXT}, ended = NULL")

    assert await problems(place) == [
        (r"\xff", 0, f"{HEAD} writer"),
        (writer, 0, "has records but no head"),
    ]
    assert await lists(place) == (
        ["c3", "c2", "c1", "c0"],
        [str(seq) for seq in range(1, LENGTH + 1)],
    )


async def test_record_of_an_invalid_time_is_in_the_export_of_any_time(trail: tuple[str, str]):
    place, _ = trail
    change(place, "UPDATE audit SET at = 'noon' WHERE seq = 5")

    async with AuditReader.open(place) as reader:
        found = [each["seq"] async for piece in reader.export(0, 1) for each in piece]

    assert found == [5]


async def test_pages_with_damaged_records_lead_to_all_calls(trail: tuple[str, str]):
    place, _ = trail
    change(place, f"UPDATE audit SET at = {BAD_TEXT} WHERE seq = 3")
    change(place, f"UPDATE audit SET seq = {BAD_TEXT} WHERE seq = 5")
    found, after = list[str](), ""
    async with AuditReader.open(place) as reader:
        for _ in range(2 * len(CALLS)):
            calls, after = await reader.page(CallFilter(after=after), limit=1)
            found += [each["call"] for each in calls]
            if not after:
                break

    assert found == ["c1", "c3", "c2", "c0"]
    assert after == ""


async def test_record_whose_body_is_not_json_is_shown_in_any_database(place: str):
    writer = await write(place)
    sql = "UPDATE audit SET body = 'not json' WHERE seq = 5"
    if place.startswith("postgres"):
        tables = PostgresAudit(place)
        await tables.fetch(sql)
        await tables.close()
    else:
        change(place, sql)

    text = "was changed, or does not follow the record before it"
    assert await problems(place) == [(writer, 5, text)]
    assert (await lists(place))[0] == ["c3", "c2!", "c1", "c0"]
    async with AuditReader.open(place) as reader:
        intent, _ = await reader.records("c2")
    assert (intent["damaged"], intent["body"]) == (["body"], "not json")


async def test_damaged_configuration_record_is_not_read_as_the_last_one(trail: tuple[str, str]):
    place, _ = trail
    change(place, "UPDATE audit SET kind = 'config', body = 'x' WHERE seq = 5")

    async with AuditReader.open(place) as reader:
        assert await reader.last("config") is None
