"""Ids of kept results."""

from __future__ import annotations

from interlock.store.kept import Kept


def test_ids_cannot_be_guessed_and_expire_after_their_lifetime():
    kept = [Kept.new(1.5, 10) for _ in range(100)]

    assert len({each.id for each in kept}) == 100
    assert all(len(each.id) == 22 for each in kept)  # 80 random bits
    assert {each.expires for each in kept} == {1_500_010}
