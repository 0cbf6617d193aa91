"""What may differ between an approved call and the call that follows, as data."""

from __future__ import annotations

from typing import Any, NamedTuple

APPROVED: dict[str, Any] = {"amount": 80, "to": {"name": "Ann", "city": "Oslo"}}
MADE = ""  # the reason of a call that was made


class Follow(NamedTuple):
    """A call that follows an approval.

    Attributes:
        reason: Why it is not made; "" if it is.
        arguments: Of the call.
        tool: Its name.
        user: Who makes it.
        key: Which key of the user.
    """

    reason: str = "approval_pending"
    arguments: dict[str, Any] = APPROVED
    tool: str = "put"
    user: str = "anna"
    key: int = 0


FOLLOWS = {
    "another amount": Follow(arguments={**APPROVED, "amount": 81}),
    "number as text": Follow(arguments={**APPROVED, "amount": "80"}),
    "number with a fraction": Follow(arguments={**APPROVED, "amount": 80.5}),
    "nested argument": Follow(arguments={**APPROVED, "to": {"name": "Ann", "city": "Bonn"}}),
    "further argument": Follow(arguments={**APPROVED, "note": None}),
    "argument less": Follow(arguments={"amount": 80}),
    "no arguments": Follow(arguments={}),
    "look-alike letters": Follow(
        arguments={**APPROVED, "to": {"name": "\N{CYRILLIC CAPITAL LETTER A}nn", "city": "Oslo"}}
    ),
    "other Unicode form": Follow(arguments={**APPROVED, "to": {"name": "A\u200bnn"}}),
    "another tool": Follow(tool="other"),
    "another user": Follow(user="carl"),
    "another key of the user": Follow(key=1),
    "other order of members": Follow(
        MADE, arguments={"to": {"city": "Oslo", "name": "Ann"}, "amount": 80}
    ),
    "replay": Follow(),  # after the call before was made
}

# What happens to the gateway between the approval and the same call, and the call's reason.
CHANGES = {
    "nothing": MADE,
    "restart": MADE,
    "expiry": "approval_pending",
    "clock set back": "approval_pending",
    "policy": "approval_pending",
    "definition": "approval_pending",
    "revoked key": "approval_required",
    "rotated key": "approval_required",
    "denial": "approval_denied",
}
