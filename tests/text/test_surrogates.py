"""Halves of characters in encoded JSON."""

from __future__ import annotations

from pathlib import Path

from interlock.text.surrogates import (
    has_halves,
    path_text,
    repair_cut,
    repair_json,
    repair_text,
    repair_value,
)
from tests.support.rows import each_row


@each_row(
    "given, repaired",
    [
        (rb'"\ud83d\ude00"', rb'"\ud83d\ude00"'),
        (rb'"\uD83D\uDE00"', rb'"\uD83D\uDE00"'),
        (rb'"\ud83d"', rb'"\ufffd"'),
        (rb'"\uDE00\ud83d"', rb'"\ufffd\ufffd"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\\ud83d\\\ud83d"', rb'"\\ud83d\\\ufffd"'),
        (rb'"\ud83d\u0041\ud7ff"', rb'"\ufffd\u0041\ud7ff"'),
        (b'"\xed\xa0\xbd\xed\xb8\x80"', '"😀"'.encode()),
        (b'"\xed\xa0\xbdx\xed\xb8\x80"', '"�x�"'.encode()),
        ('"힣é😀"'.encode(), '"힣é😀"'.encode()),
        (b'"\xff\xed"', b'"\xff\xed"'),
        (b"\\ud83", b"\\ud83"),
    ],
)
def test_halves_are_joined_or_replaced_and_nothing_else_changes(given: bytes, repaired: bytes):
    assert repair_json(given) == repaired


@each_row(
    "given, repaired",
    [
        ("caf\udce9", "caf\ufffd"),  # a byte of Latin-1 in a file name
        ("\udced\udca0\udcbd\udced\udcb8\udc80", "😀"),  # each half encoded by itself
        ("\ud83d\ude00 \ud83d", "😀 \ufffd"),
        ("é😀", "é😀"),
    ],
)
def test_text_of_the_system_has_whole_characters(given: str, repaired: str):
    assert repair_text(given) == repaired


@each_row(
    "given, repaired",
    [
        ("a😀".encode()[:-1], "a\ufffd".encode()),
        ("😀a".encode()[1:], "\ufffda".encode()),
        (b"a\xed\xa0\xbdb", "a\ufffdb".encode()),
        (b"caf\xe9 noir", b"caf\xe9 noir"),
        (b"\x89PNG\0", b"\x89PNG\0"),
    ],
)
def test_text_that_was_cut_is_whole_and_other_data_stays(given: bytes, repaired: bytes):
    assert repair_cut(given) == repaired


def test_values_have_whole_characters_and_stay_the_same_object_otherwise():
    value = {"a": ["é", 1]}

    assert repair_value(value) is value
    assert repair_value({"a": ["\ud83d"]}) == {"a": ["\ufffd"]}
    assert not has_halves(object())


def test_different_paths_have_different_texts():
    assert path_text(Path("caf\udce9")) == r"caf\udce9"
    assert path_text(Path("café")) == "café"
