"""What another configuration would change."""

from __future__ import annotations

from interlock.gateway.planning import compared


def test_comparison_lists_added_changed_and_removed_members():
    assert compared({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 5, "d": 4}) == {
        "added": ["d"],
        "changed": ["b"],
        "removed": ["c"],
    }
