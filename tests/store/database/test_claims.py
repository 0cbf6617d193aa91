"""SQL of changes, in the forms of both databases."""

from __future__ import annotations

from interlock.store.database.claims import numbered


def test_parameters_are_numbered_in_their_order_for_postgresql():
    assert numbered("UPDATE t SET a = ?, b = ? WHERE id = ?") == (
        "UPDATE t SET a = $1, b = $2 WHERE id = $3"
    )
