"""The inspector's page, which is the same at all of its paths."""

from __future__ import annotations

from interlock.web.files import SHARED_STYLES, Shell

INSPECTOR = Shell(
    "interlock inspector", "inspect/inspect.js", (*SHARED_STYLES, "inspect/inspect.css")
)


def shell_at(path: str) -> Shell | None:
    """Return the inspector's page if a path belongs to it; None otherwise."""
    is_here = path == "/inspect" or path.startswith("/inspect/")
    return INSPECTOR if is_here else None
