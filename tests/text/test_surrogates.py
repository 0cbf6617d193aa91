"""Halves of characters in encoded JSON."""

from __future__ import annotations

from interlock.text.surrogates import repair_json
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
