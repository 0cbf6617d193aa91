"""An approval of a call is bound to its arguments and ends."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.langgraph.approvals import approval_of, refusal
from tests.layers.support import call_of

ENTRY = call_of().entry
CALL = {"id": "t1", "name": "crm__refund", "args": {"order": 1}}
LATER, EARLIER = "2999-01-01T00:00:00+00:00", "2001-01-01T00:00:00+00:00"


def approval(expires: str = LATER, **call: Any) -> dict[str, Any]:
    return approval_of({**CALL, **call}, ENTRY, "writes", expires)


def test_id_and_hash_change_with_the_arguments_and_not_with_their_order() -> None:
    one, same = (approval(args=args) for args in ({"a": 1, "b": 2}, {"b": 2, "a": 1}))
    other = approval(args={"a": 1, "b": 3})

    assert (one["id"], one["hash"]) == (same["id"], same["hash"])
    assert one["id"] != other["id"]
    assert one["hash"] != other["hash"]


@pytest.mark.parametrize(
    ("decision", "code"),
    [
        ("allow", None),
        ({"decision": "allow"}, None),
        ("deny", "approval_denied"),
        ({"decision": "ALLOW"}, "approval_denied"),
        ({"decision": "allow", "hash": "of other arguments"}, "approval_changed"),
        (None, "approval_changed"),
    ],
)
def test_only_the_decision_to_allow_exactly_this_call_allows_it(decision: Any, code: Any) -> None:
    asked = approval()

    assert refusal(asked, {asked["id"]: decision}) == code


def test_an_approval_that_has_expired_allows_nothing() -> None:
    asked = approval(EARLIER)

    assert refusal(asked, {asked["id"]: "allow"}) == "approval_expired"
    assert refusal(asked, "allow") == "approval_changed"
