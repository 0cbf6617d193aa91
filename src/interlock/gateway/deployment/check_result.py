"""The result of one check of a deployment."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

State = Literal["ok", "warning", "error"]


class CheckResult(Struct, frozen=True):
    """The result of one check.

    Attributes:
        id: The check; ids do not change from release to release.
        state: "error" if the gateway cannot serve, or is not safe.
        text: The thing and its value; the problem and what to do, if there is one.
    """

    id: str
    state: State
    text: str


def ok(id: str, text: str) -> CheckResult:
    """Return the result of a check without a problem."""
    return CheckResult(id, "ok", text)


def warning(id: str, text: str) -> CheckResult:
    """Return a problem that does not keep the gateway from serving."""
    return CheckResult(id, "warning", text)


def error(id: str, text: str) -> CheckResult:
    """Return a problem that must be solved first."""
    return CheckResult(id, "error", text)
