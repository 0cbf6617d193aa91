"""Values of the calling user and of its request, for the headers and variables of a server.

1. A connection is used only for calls with the same values: they are part of its key.
2. A call whose caller lacks a value is refused. No server gets an empty value instead.
3. No value is in an error, a log or a record.
"""

from __future__ import annotations

from collections.abc import Sequence

from interlock.calls import Caller
from interlock.config.variables import CALLER_CLAIM, CALLER_USER, HEADER
from interlock.errors import CallRefused

LOCAL_USER = "user:local"  # the user of a call without a principal, as in the audit trail
MAX_VALUE = 4_096  # characters


def values_of(
    server: str, references: Sequence[str], caller: Caller, *, in_headers: bool
) -> tuple[str, ...]:
    """Return a caller's value for each reference.

    Args:
        server: The server's name, for errors.
        references: References such as "${caller.claim:tenant}".
        in_headers: Whether the values become parts of HTTP headers.

    Raises:
        CallRefused: A value is missing, or cannot be sent.
    """
    values, problems = [], []
    for reference in references:
        what, value = _found(reference[2:-1], caller)
        problem = _problem(value, in_headers=in_headers)
        if problem:
            problems.append(f"{what} {problem}")
        values.append(str(value))
    if problems:
        text = f"server {server!r} needs values of the caller: {', '.join(problems)}"
        raise CallRefused(text, "caller_value_missing")
    return tuple(values)


def _found(name: str, caller: Caller) -> tuple[str, object]:
    """Return the name of a value for people, and the value; None if it is missing."""
    principal = caller.principal
    if name == CALLER_USER:
        return "the user's id", LOCAL_USER if principal is None else principal.id
    if name.startswith(CALLER_CLAIM):
        claim = name.removeprefix(CALLER_CLAIM)
        value = None if principal is None else principal.claims.get(claim)
        if isinstance(value, bool):
            value = str(value).lower()
        return f"the claim {claim!r}", value
    header = name.removeprefix(HEADER)
    return f"the header {header}", caller.headers.get(header.lower())


def _problem(value: object, *, in_headers: bool) -> str:
    """Return why a value cannot be sent, without the value; "" if it can be sent."""
    if value is None or value == "":
        return "is missing"
    if not isinstance(value, str | int):
        return "is neither a text nor a whole number"
    text = str(value)
    if len(text) > MAX_VALUE:
        return f"is too long (limit {MAX_VALUE:,} characters)"
    if text != text.strip():
        return "begins or ends with a blank"
    if not text.isprintable():
        return "has a control character"
    return "has a character that is not ASCII" if in_headers and not text.isascii() else ""
