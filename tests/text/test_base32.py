"""Ids in base 32."""

from __future__ import annotations

from interlock.text.base32 import DIGITS, PAIRS, encode


def test_texts_sort_as_their_numbers():
    numbers = [0, 1, 31, 32, 1_000, 2**40 - 1]

    texts = [encode(each, 8) for each in numbers]

    assert texts == sorted(texts)
    assert texts[:4] == ["00000000", "00000001", "0000000z", "00000010"]


def test_base32_pairs_encode_ten_bits():
    assert tuple(encode(each, 2) for each in range(1 << 10)) == PAIRS


def test_alphabet_of_ids_has_no_similar_looking_characters():
    assert not set(DIGITS) & set("ilou")
    assert DIGITS.lower() == DIGITS
