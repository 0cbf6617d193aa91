"""A trail and its copy stay whole if names become pseudonyms, and only then."""

from __future__ import annotations

from pathlib import Path

from interlock.auth.gateway_key import GatewayKey
from interlock.config.gateway import Audit
from interlock.store import AuditReader, AuditRecord, AuditWriter
from interlock.store.audit.copy_reading import read_copy
from interlock.store.audit.forgetting import forget_in_copy, forget_in_trail
from interlock.store.audit.names import Pseudonyms, people_in

KEY = GatewayKey(bytes(range(32)))
ANNA, BERT, CARL = "user:anna", "user:bert", 'https://issuer.example#"c\\arl"'
EVE = "group:eve"
NAMES = Pseudonyms(KEY)
CHANGED = "was changed, or does not follow the record before it"


def deed(user: str, about: str) -> AuditRecord:
    body = '{"action":"changed","before":{"user":%s},"note":"user:anna"}'
    encoded = (body % quoted(about)).encode()
    return AuditRecord("admin", user=user, body=encoded)


def quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def call(user: str) -> AuditRecord:
    return AuditRecord("intent", "c1", user, "k1", "crm", "crm:get", body=b'{"client":"user:anna"}')


async def test_forgotten_names_leave_a_whole_trail_and_a_whole_copy(place: str, tmp_path: Path):
    settings = Audit(copy=str(tmp_path / "copy"))
    async with AuditWriter.open(place, key=KEY, settings=settings) as writer:
        records = [call(ANNA), call(BERT), deed(BERT, ANNA), deed(ANNA, BERT), deed(BERT, CARL)]
        await writer.append_all(records)
        for name in (ANNA, CARL):
            assert await forget_in_trail(writer.tables, name, KEY) == {ANNA: 3, CARL: 1}[name]
            assert await forget_in_trail(writer.tables, name, KEY) == 0
        await writer.append(call(BERT))  # the chain goes on
        rows = await writer.tables.fetch('SELECT "user", body FROM audit ORDER BY seq')
    for name in (ANNA, CARL):
        assert forget_in_copy(tmp_path / "copy", name, KEY)
        assert forget_in_copy(tmp_path / "copy", name, KEY) == 0

    assert [row[0] for row in rows] == [NAMES[ANNA], BERT, BERT, NAMES[ANNA], BERT, BERT]
    assert rows[2][1] == (
        f'{{"action":"changed","before":{{"user":"{NAMES[ANNA]}"}},"note":"{NAMES[ANNA]}"}}'
    )
    assert '"user":"user:bert"' in rows[3][1]
    assert "arl" not in rows[4][1]
    copied = "".join(path.read_text() for path in (tmp_path / "copy").iterdir())
    assert copied.count(NAMES[ANNA]) == 6
    assert copied.count(NAMES[CARL]) == 1
    assert "arl" not in copied
    async with AuditReader.open(place) as reader:
        found = await reader.verify(KEY, copy=read_copy([tmp_path / "copy"], KEY))
    assert found.problems == []


async def test_only_the_name_itself_and_its_pseudonym_fit_a_record(place: str):
    async with AuditWriter.open(place, key=KEY) as writer:
        await writer.append_all([call(ANNA), deed(BERT, ANNA)])
        deep = '{"a":' * 100_000
        changes = {
            f"\"user\" = '{NAMES[ANNA]}' WHERE seq = 1": "",
            "\"user\" = 'user:anna' WHERE seq = 1": "",
            "\"user\" = 'user:bert' WHERE seq = 1": CHANGED,
            f"\"user\" = '{NAMES[BERT]}' WHERE seq = 1": CHANGED,
            "\"user\" = '' WHERE seq = 1": CHANGED,
            f"body = replace(body, '{ANNA}', '{NAMES[ANNA]}') WHERE seq = 2": "",
            f"body = replace(body, '{ANNA}', '{NAMES[BERT]}') WHERE seq = 2": CHANGED,
            f"body = replace(body, '{ANNA}', '{BERT}') WHERE seq = 2": CHANGED,
            "body = '{}' WHERE seq = 2": CHANGED,
            "body = '{' WHERE seq = 2": CHANGED,
            f"body = '{deep}' WHERE seq = 2": CHANGED,
        }
        before = await writer.tables.fetch('SELECT "user", body FROM audit ORDER BY seq')
        for change, problem in changes.items():
            await writer.tables.write((f"UPDATE audit SET {change}", [()]))
            async with AuditReader.open(place) as reader:
                found = await reader.verify(KEY)
            assert [each.text for each in found.problems] == ([problem] if problem else []), change
            for seq, row in enumerate(before, 1):
                put_back = 'UPDATE audit SET "user" = ?, body = ? WHERE seq = ?'
                await writer.tables.write((put_back, [(*row, seq)]))


def test_people_of_a_body_are_found_wherever_they_are():
    before = f'{{"user":"{BERT}","by":"{ANNA}","name":"x","arguments":{{"user":"user:eve"}}}}'
    body = f'{{"of":"{ANNA}","before":{before},"after":null,"by":"","approvers":["{EVE}"]}}'
    assert people_in(body) == (ANNA, BERT, EVE)
