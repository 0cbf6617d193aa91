"""Every way to tamper with a trail is found, and its place is named."""

from __future__ import annotations

import random
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.auth.gateway_key import GatewayKey
from interlock.store.audit.copy_reading import Mark, TrailCopy
from interlock.store.audit.heads import (
    EMPTY,
    FIRST_HASH,
    Register,
    StoredHead,
    chain_hash,
    chain_key,
)
from interlock.store.audit.names import Pseudonyms
from interlock.store.audit.records import COLUMNS
from interlock.store.audit.verification import MAX_PROBLEMS, REGISTER, Verification
from tests.support.rows import each_row

KEY = GatewayKey(bytes(range(32)))
CHAIN_KEY, NAMES = chain_key(KEY), Pseudonyms(KEY)
LENGTH = 12
Row = tuple[Any, ...]


def chain(writer: str, length: int = LENGTH) -> list[Row]:
    rows: list[Row] = []
    hash = FIRST_HASH
    for seq in range(1, length + 1):
        kind = "intent" if seq % 2 else "outcome"
        columns = (
            seq * 1_000,
            "default",
            kind,
            f"c{seq // 2}",
            "user:anna",
            "",
            "s",
            "s:t",
            "",
            "",
        )
        hash = chain_hash(hash, seq, *NAMES.covered(columns, f'{{"n":{seq}}}'), CHAIN_KEY)
        rows.append((writer, seq, *columns, f'{{"n":{seq}}}', hash))
    return rows


def head_of(rows: list[Row], *, ended: bool = True, key: GatewayKey = KEY) -> StoredHead:
    writer, seq, hash = rows[-1][0], rows[-1][1], rows[-1][-1]
    ended_at = 9 if ended else None
    head = StoredHead(writer, 1, ended_at, "host", seq, hash, None, 7, None, 0, None, None)
    return head.signed(key)


def register_of(*heads: StoredHead) -> Register:
    register = EMPTY
    for head in heads:
        register = register.changed(KEY, None, head)
    return register


def purged(rows: list[Row], head: StoredHead, upto: int) -> tuple[list[Row], StoredHead]:
    return rows[upto:], head.purged(KEY, upto, rows[upto - 1][-1])


def problems(
    rows: list[Row],
    *heads: StoredHead,
    marks: dict[str, Mark] | None = None,
    register: Register | None = None,
) -> list[tuple[str, int, str]]:
    register = register or register_of(*heads)
    verification = Verification(heads, register, KEY, TrailCopy(0, marks or {}))
    for writer in sorted({row[0] for row in rows}):
        verification.check(writer, [row[1:] for row in rows if row[0] == writer])
    verification.finish()
    assert verification.total == len(verification.problems)
    return [(each.writer, each.seq, each.text) for each in verification.problems]


A, B = chain("aa"), chain("bb")
HEADS = head_of(A), head_of(B)


def test_untouched_chains_are_whole():
    verification = Verification(HEADS, register_of(*HEADS), KEY)
    for rows in (A, B):
        verification.check(rows[0][0], [row[1:] for row in rows])
    verification.finish()

    assert verification.problems == []
    assert (verification.records, verification.writers) == (2 * LENGTH, 2)
    assert (verification.first, verification.last) == (1_000, LENGTH * 1_000)


@each_row("column", range(2, 13))
def test_changed_column_is_found_at_its_record(column: int):
    text = "was changed, or does not follow the record before it"
    for seq in range(1, LENGTH + 1):
        row = list(A[seq - 1])
        row[column] = row[column] + 1 if isinstance(row[column], int) else row[column] + "x"
        rows = [*A[: seq - 1], tuple(row), *A[seq:], *B]

        assert problems(rows, *HEADS) == [("aa", seq, text)]


@each_row("value", [b"x", 1.5, "\udcff"], ids=["blob", "real", "not UTF-8"])
@each_row("column", range(2, 14))
def test_column_of_another_type_is_named_once_with_its_record(column: int, value: object):
    if column == 13 and value == b"x":
        value = "x"
    text = f"was changed: invalid {COLUMNS[column]}"
    for seq in (1, 5, LENGTH):
        row = (*A[seq - 1][:column], value, *A[seq - 1][column + 1 :])

        assert problems([*A[: seq - 1], row, *A[seq:], *B], *HEADS) == [("aa", seq, text)]


def test_text_replaced_by_an_equal_blob_is_detected():
    columns = (1_000, "", "intent", "c1", "user:anna", "abcd", "s", "s:t", "", "")
    hash = chain_hash(FIRST_HASH, 1, *NAMES.covered(columns, "{}"), CHAIN_KEY)
    whole = ("cc", 1, *columns, "{}", hash)
    changed = (*whole[:7], b64decode("abcd"), *whole[8:])

    assert problems([whole], head_of([whole])) == []
    assert problems([changed], head_of([whole])) == [("cc", 1, "was changed: invalid key")]


@each_row(
    ("number", "shown"),
    [("abc", "abc"), ("\udcff", r"\xff"), (b"\xff", "x'ff'"), (5.5, "5.5"), (0, "0"), (-1, "-1")],
)
def test_record_with_an_invalid_number_is_found_beside_the_missing_one(number: object, shown: str):
    moved = (A[4][0], number, *A[4][2:])
    rows = [*A[:4], *A[5:]]
    rows.insert(0 if number in (0, -1) else 4 if number == 5.5 else LENGTH - 1, moved)

    assert sorted(problems([*rows, *B], *HEADS)) == [
        ("aa", 0, f"has a record with the invalid number {shown}"),
        ("aa", 5, "is missing"),
    ]


def test_damaged_records_in_a_row_are_all_named():
    rows = [(*row[:13], "x") if row[1] in (4, 5, 7) else row for row in A if row[1] != 6]

    assert problems([*rows, *B], *HEADS) == [
        ("aa", 4, "was changed: invalid hash"),
        ("aa", 5, "was changed: invalid hash"),
        ("aa", 6, "is missing"),
        ("aa", 7, "was changed: invalid hash"),
        ("aa", 8, "was changed, or does not follow the record before it"),
    ]


@each_row("column", StoredHead.__struct_fields__[1:])
def test_head_of_another_type_is_named_with_its_writer(column: str):
    changed = replace(HEADS[0], **{column: 1.5})

    assert problems([*A, *B], changed, HEADS[1]) == [
        ("aa", 0, f"the head was changed: invalid {column}")
    ]


@each_row(("writer", "shown"), [(b"\xff", "x'ff'"), ("\udcff", r"\xff")])
def test_damaged_name_of_a_writer_is_shown_as_text(writer: Any, shown: str):
    verification = Verification(HEADS[:1], None, KEY)
    verification.check("aa", [row[1:] for row in A])
    verification.check(writer, [A[0][1:]])

    assert [str(each) for each in verification.problems] == [
        f"writer {shown}: has records but no head"
    ]


def test_changed_purge_record_is_reported_as_changed():
    columns = (1, "", "checkpoint", *[""] * 7)
    hash = chain_hash(FIRST_HASH, 1, columns, "{}", CHAIN_KEY)
    text = "was changed, or does not follow the record before it"
    for body in ("not json", "[]", '{"before":7}', '{"a":' + "[" * 100_000):
        row = ("cc", 1, *columns, body, hash)

        assert problems([row], head_of([row])) == [("cc", 1, text)]


@each_row("first", range(1, LENGTH + 1))
@each_row("count", [1, 3])
def test_deleted_records_are_named(first: int, count: int):
    last = min(first + count - 1, LENGTH)
    rows = A[: first - 1] + A[last:]

    ((writer, seq, text),) = problems([*rows, *B], *HEADS)

    assert (writer, seq) == ("aa", first)
    assert text.startswith("is missing")
    assert text.endswith(f"up to {last}") == (last > first)


@each_row("seq", range(1, LENGTH))
def test_swapped_audit_records_are_detected(seq: int):
    one, other = A[seq - 1], A[seq]
    rows = [
        *A[: seq - 1],
        (*other[:1], seq, *other[2:]),
        (*one[:1], seq + 1, *one[2:]),
        *A[seq + 1 :],
    ]

    assert ("aa", seq) in {(writer, at) for writer, at, _ in problems([*rows, *B], *HEADS)}


@each_row("seq", range(1, LENGTH + 1))
def test_inserted_record_is_detected_even_if_later_hashes_are_recomputed(seq: int):
    made = [*A[: seq - 1], A[0], *A[seq - 1 :]]
    rows: list[Row] = []
    hash = FIRST_HASH
    for number, row in enumerate(made, 1):
        hash = chain_hash(hash, number, *NAMES.covered(row[2:12], row[12]), CHAIN_KEY)
        rows.append((row[0], number, *row[2:13], hash))

    found = problems([*rows, *B], *HEADS)

    assert {at for _, at, _ in found} == {LENGTH, LENGTH + 1}
    assert "is not the record that the head states" in found[0][2]


def test_rewritten_chain_with_a_rewritten_head_is_found_by_its_signature():
    other = chain("aa", 5)
    forged = head_of(other, key=GatewayKey.random())

    assert problems([*other, *B], forged, HEADS[1]) == [
        ("aa", 5, "the head is not signed by this key")
    ]


@each_row("ended", [True, False])
@each_row("left", [0, 1, LENGTH - 1])
def test_tail_that_is_cut_before_the_signed_head_is_found(ended: bool, left: int):
    ((writer, seq, text),) = problems([*A[:left], *B], head_of(A, ended=ended), HEADS[1])

    assert (writer, seq) == ("aa", left + 1)
    also = "" if left == LENGTH - 1 else f", with all records up to {LENGTH}"
    assert text == "is missing" + also


def test_records_after_the_head_are_expected_of_a_running_writer_only():
    running, over = head_of(A[:5], ended=False), head_of(A[:5])

    assert problems([*A, *B], running, HEADS[1]) == []
    assert problems([*A, *B], over, HEADS[1]) == [("aa", 6, "was added after the writer had ended")]


def test_removed_head_is_found():
    assert problems([*A, *B], HEADS[1]) == [("aa", 0, "has records but no head")]


@each_row(
    ("changes", "text"),
    [
        ({"signature": None}, "the head has no signature"),
        ({"signed_at": None}, "the head is not signed by this key"),
        ({"ended": None}, "the head is not signed by this key"),
        ({"started": 2}, "the head is not signed by this key"),
        ({"open_seq": 5}, "the head is not signed by this key"),
        ({"signature": b"x"}, "the head is not signed by this key"),
    ],
)
def test_cut_chain_whose_head_was_changed_is_found_by_the_signature(
    changes: dict[str, Any], text: str
):
    rewound = replace(head_of(A[:5]), **changes)

    assert problems([*A[:5], *B], rewound, HEADS[1]) == [("aa", 5, text)]


def test_removed_chain_whose_head_was_rewound_is_found_by_the_missing_signature():
    rewound = replace(HEADS[0], seq=0, hash=FIRST_HASH, signature=None)

    assert problems(B, rewound, HEADS[1]) == [("aa", 0, "the head has no signature")]


def test_register_shows_heads_that_were_removed_added_or_put_back():
    register = register_of(*HEADS)
    older = head_of(A[:5])
    removed = "1 of 2 writers were removed with all their records"
    moved = "a writer was removed, added, or put back to an older state"

    assert problems([*A, *B], *HEADS, register=register) == []
    assert problems(B, HEADS[1], register=register) == [(REGISTER, 0, removed)]
    assert problems([*A[:5], *B], older, HEADS[1], register=register) == [(REGISTER, 0, moved)]
    assert problems([*A, *B], *HEADS, register=register_of(HEADS[1])) == [(REGISTER, 0, moved)]
    forged = register._replace(heads=1)
    text = "was changed, or is not signed by this key"
    assert problems(B, HEADS[1], register=forged) == [(REGISTER, 0, text)]
    assert problems([*A, *B], *HEADS, register=forged.changed(KEY, None, None)) == [
        (REGISTER, 0, text)
    ]


@each_row("upto", [1, 5, LENGTH])
def test_purged_chain_is_whole(upto: int):
    rows, head = purged(A, HEADS[0], upto)

    assert problems([*rows, *B], head, HEADS[1]) == []


def test_records_that_the_head_states_as_purged_are_found():
    _, head = purged(A, HEADS[0], 5)

    assert problems([*A, *B], head, HEADS[1]) == [
        ("aa", 1, "exists, although the head states that it was purged")
    ]


def test_records_removed_like_a_purge_are_detected_by_the_missing_signature():
    rows, head = purged(A, HEADS[0], 5)
    forged = replace(head, base_signature=bytes(64))

    assert problems([*rows, *B], forged, HEADS[1]) == [
        ("aa", 5, "the purge up to here is not signed by this key")
    ]


def test_older_copy_of_the_database_is_found_by_a_newer_head():
    older = A[:5], head_of(A[:5], ended=False)
    mark = Mark(9, A[8][-1], "")

    assert problems([*older[0], *B], older[1], HEADS[1]) == []
    assert problems([*older[0], *B], older[1], HEADS[1], marks={"aa": mark}) == [
        ("aa", 6, "is missing, with all records up to 9")
    ]
    assert problems(B, HEADS[1], marks={"aa": mark}) == [
        ("aa", 9, "is missing with its whole chain")
    ]


def test_record_that_differs_from_the_copy_is_found():
    mark = Mark(9, bytes(32), "")

    assert problems([*A, *B], *HEADS, marks={"aa": mark}) == [
        ("aa", 9, "is not the record that the copy states")
    ]


def test_purged_records_of_the_copy_are_not_missing():
    rows, head = purged(A, HEADS[0], 9)

    assert problems([*rows, *B], head, HEADS[1], marks={"aa": Mark(8, A[7][-1], "")}) == []


@each_row("at", ["2026-01-01T00:00:00.000Z", "2026-03-01T00:00:00.000Z"])
def test_purged_chain_of_the_copy_is_not_missing(at: str):
    body = '{"before":"2026-02-01T00:00:00.000Z","records":5,"ends":{"aa":5}}'
    columns = (1, "default", "checkpoint", *[""] * 7)
    row = ("cc", 1, *columns, body, chain_hash(FIRST_HASH, 1, columns, body, CHAIN_KEY))

    found = problems([row], head_of([row]), marks={"aa": Mark(5, A[4][-1], at)})

    assert [each[:2] for each in found] == ([("aa", 5)] if at > "2026-02" else [])


DAMAGE: list[Callable[[list[Row], int], object]] = [
    lambda rows, at: rows.pop(at),
    lambda rows, at: rows.__setitem__(at, (*rows[at][:-1], bytes(32))),
    lambda rows, at: rows.__setitem__(at, (*rows[at][:6], "user:eve", *rows[at][7:])),
    lambda rows, at: rows.__delitem__(slice(at, None)),
]


@pytest.mark.slow("works through much data")
def test_random_damage_is_detected_at_its_first_record():
    chance = random.Random(7)
    for _ in range(500):
        rows, at = [*A], chance.randrange(LENGTH)
        chance.choice(DAMAGE)(rows, at)
        found = problems([*rows, *B], *HEADS)
        assert found[0][:2] == ("aa", at + 1)


def test_long_list_of_problems_is_cut_and_counted():
    rows = [(*row[:6], "user:eve", *row[7:]) for row in chain("aa", 3 * MAX_PROBLEMS)]
    verification = Verification([], None, KEY)
    verification.check("aa", [row[1:] for row in rows])
    verification.finish()

    assert len(verification.problems) == MAX_PROBLEMS
    assert verification.total == 3 * MAX_PROBLEMS + 2
