"""Formats tool calls and their results as short lines of text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from interlock.cli.terminal import safe, safe_line
from interlock.protocol.envelope import encode

if TYPE_CHECKING:
    from interlock.agent import ToolProgress
    from interlock.protocol import Progress

LONGEST_ARGUMENTS = 200  # characters
LONGEST_EXCERPT = 6  # lines
LONGEST_PROGRESS = 60  # characters


def call_line(address: str, arguments: dict[str, Any]) -> str:
    """Return a tool call on one line; long arguments are cut."""
    listed = ", ".join(f"{name}={encode(value).decode()}" for name, value in arguments.items())
    return f"{safe_line(address)}({safe_line(listed, LONGEST_ARGUMENTS)})"


def progress_text(report: Progress | ToolProgress) -> str:
    """Return a call's progress as text: a percentage and the server's message."""
    if report.total:
        done = f"{min(report.progress / report.total, 1):.0%}"
    else:
        done = f"{report.progress:g}"
    return f"{done} {safe_line(report.message or '', LONGEST_PROGRESS)}".rstrip()


def excerpt(text: str, width: int) -> list[str]:
    """Return the first lines of a result, each at most `width` characters long."""
    lines = [
        safe(line) for line in text[: 100 * LONGEST_EXCERPT * width].splitlines() if line.strip()
    ]
    shown = [line[: width - 1] + "…" if len(line) > width else line for line in lines]
    more = len(lines) - LONGEST_EXCERPT
    if more > 0:
        return [*shown[:LONGEST_EXCERPT], f"… {more} more lines"]
    return shown
