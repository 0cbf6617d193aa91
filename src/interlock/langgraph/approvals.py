"""Calls that wait until a person allows them."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any

from interlock.agent import approval_hash
from interlock.calls import Entry

APPROVAL_SECONDS = 86_400
REFUSALS = {
    "approval_denied": "a person denied it",
    "approval_expired": "the time to allow it was over",
    "approval_changed": "it was not allowed with these arguments",
}


def approval_of(call: Any, entry: Entry, reason: str, expires: str) -> dict[str, Any]:
    """Describe a call for the person who decides. Its id is bound to its arguments."""
    hash = approval_hash(entry.address, call["args"])
    return {
        "id": "a_" + hashlib.sha256(f"{call['id']} {hash}".encode()).hexdigest()[:24],
        "tool_call_id": call["id"],
        "address": entry.address,
        "arguments": call["args"],
        "reason": reason,
        "expires": expires,
        "hash": hash,
    }


def refusal(approval: dict[str, Any], decisions: Any) -> str | None:
    """Return the code of why a call was not allowed; None if it was."""
    given = decisions.get(approval["id"]) if isinstance(decisions, dict) else None
    if given is None:
        return "approval_changed"
    if isinstance(given, str):
        given = {"decision": given}
    if given.get("hash", approval["hash"]) != approval["hash"]:
        return "approval_changed"
    if datetime.fromisoformat(approval["expires"]) < datetime.now(UTC):
        return "approval_expired"
    return None if given.get("decision") == "allow" else "approval_denied"
