"""API keys: well-formed ones have an id, and a typing error is noticed without a look-up."""

from __future__ import annotations

import re

from interlock.auth import key_format
from tests.support.rows import each_row


def test_generated_key_has_the_documented_form_and_its_id():
    key, id = key_format.generate()

    assert re.fullmatch(r"ilk_[a-z0-9]{12}_[0-9A-Za-z]{49}", key)
    assert key_format.id_of(key) == id


def test_generated_keys_differ():
    assert len({key_format.generate()[0] for _ in range(100)}) == 100


@each_row("position", [5, 20, 40, 65])
def test_key_with_one_changed_character_has_no_id(position: int):
    key, _ = key_format.generate()
    other = "b" if key[position] == "a" else "a"

    assert key_format.id_of(key[:position] + other + key[position + 1 :]) is None


@each_row("text", ["", "ilk_", "Bearer x", "ilk_7fk2m9qdx3ha_", "ilk_" + "é" * 62])
def test_text_that_is_not_a_key_has_no_id(text: str):
    assert key_format.id_of(text) is None
