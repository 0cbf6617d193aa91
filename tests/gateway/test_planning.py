"""What another configuration would change."""

from __future__ import annotations

from interlock.gateway.planning import compared


def test_members_are_new_different_or_gone():
    assert compared({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4}) == {
        "added": ["d"],
        "changed": ["b"],
        "removed": ["c"],
    }
