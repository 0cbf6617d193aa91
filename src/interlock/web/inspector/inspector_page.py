"""The page of the inspector, the same at all of its addresses."""

from __future__ import annotations

from interlock.web.files import SHARED_STYLES, Shell

INSPECTOR = Shell(
    "interlock inspector", "inspect/inspect.js", (*SHARED_STYLES, "inspect/inspect.css")
)


def shell_at(path: str) -> Shell | None:
    """Return the page at a path; None if the path is not the inspector's."""
    is_here = path == "/inspect" or path.startswith("/inspect/")
    return INSPECTOR if is_here else None
