"""Prints output for people and for programs.

Text from models, tools and servers is untrusted: on a terminal it could move the cursor, hide words
or reverse their order. So `safe` escapes everything except plain text before a terminal shows it.
Text that is written to a file or a pipe is not changed.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO, TypeVar

import msgspec

from interlock.text.quoting import INVISIBLE, visible, visible_json

if TYPE_CHECKING:
    from rich.status import Status

_T = TypeVar("_T")

_UNSAFE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{INVISIBLE}]")
# Between non-ASCII characters, these two joiners only shape the script, so they are allowed.
_JOINER = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
# One emoji selector after a sign is common and harmless, so it is allowed. The pattern is compiled
# on first use, because compiling takes 3 ms.
_EMOJI = f"(?<=[#*0-9\u00a9-\U0001ffff])(?<![{INVISIBLE}])\ufe0f"
_KEPT = "\ue000"


def safe(text: str) -> str:
    """Escape all characters that a terminal interprets or hides, except newlines and tabs."""
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace(_KEPT, "\\ue000")
    text = re.sub(_EMOJI, _KEPT, _JOINER.sub("", text))
    return _UNSAFE.sub(_escape, text).replace(_KEPT, "\ufe0f")


def safe_line(text: str, longest: int | None = None) -> str:
    """Escape text as `safe` does, and return it on one line of at most `longest` characters."""
    if longest is not None:
        text = text[: 4 * longest]  # saves time; still enough if much is whitespace
    line = safe(" ".join(text.split()))
    if longest is not None and len(line) > longest:
        return line[: longest - 1] + "…"
    return line


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


# Data


def emit(text: str = "") -> None:
    """Print data on stdout; escape it with `safe` if stdout is a terminal."""
    print(safe(text) if is_terminal(sys.stdout) else text)


def emit_foreign(text: str, *, raw: bool) -> None:
    """Print data of a server on stdout, escaped with `safe` even in a pipe, unless `raw` is true.

    The output of a pipe often ends in a terminal or a log.
    """
    print(text if raw else safe(text))


def emit_json(value: object) -> None:
    """Print a value as indented JSON; characters that are not safe become JSON escapes."""
    print(visible_json(value))


def emit_json_line(value: object) -> None:
    """Print a value as JSON on one line; characters that are not safe become JSON escapes."""
    print(visible(msgspec.json.encode(value).decode()), flush=True)


def emit_table(rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; a terminal's right edge cuts off the last column."""
    lines = [[safe_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    edge = _width() if is_terminal(sys.stdout) else None
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        text = "  ".join(padded).rstrip()
        print(text if edge is None or len(text) <= edge else text[: edge - 1] + "…")


def emit_list(
    found: Sequence[_T], row: Callable[[_T], Sequence[str]], *, none: str, as_json: bool
) -> None:
    """Print a list as JSON, or as a table with the message `none` if it is empty."""
    if as_json:
        emit_json(found)
        return
    emit_table(map(row, found))
    if not found:
        say(none)


def in_columns(rows: Sequence[tuple[str, str]]) -> list[str]:
    """Return lines with names and their descriptions, which are wrapped between words."""
    from textwrap import wrap

    names = [safe_line(name) for name, _ in rows]
    edge = _width(sys.stderr)
    longest = max(map(len, names), default=0)
    indent = longest + 2 if longest + 2 <= edge // 2 else 4
    lines = []
    for name, (_, description) in zip(names, rows, strict=True):
        words = wrap(safe_line(description), max(20, edge - indent))
        if indent > longest and words:
            lines.append(f"{name:{indent}}{words.pop(0)}")
        else:
            lines.append(name)
        lines += (" " * indent + each for each in words)
    return lines


# Messages


_as_line: list[Callable[[str, str], str]] = []  # the format of messages, if it is not plain text


def write_messages_by(as_line: Callable[[str, str], str] | None) -> None:
    """Print the messages in another format: a function of the level's name and the text."""
    _as_line[:] = [] if as_line is None else [as_line]


def say(text: str) -> None:
    """Print a message for the user on stderr."""
    _print("info", text, text)


def warn(text: str) -> None:
    """Print a warning on stderr; the command continues."""
    _print("warning", safe_line(text), f"warning: {safe_line(text)}")


def complain(text: str) -> None:
    """Print the error that ends the command on stderr."""
    _print("error", safe_line(text), f"error: {safe_line(text)}")


def _print(level: str, text: str, shown: str) -> None:
    if sys.stderr is not None:
        line = _as_line[0](level, text) if _as_line else safe(shown)
        print(line, file=sys.stderr, flush=True)


class Spinner:
    """A spinner with a text; without a terminal it shows nothing."""

    def __init__(self, status: Status | None) -> None:
        self._status = status

    def note(self, text: str) -> None:
        if self._status is not None:
            from rich.text import Text

            self._status.update(Text(safe_line(text, _width()), style="dim"))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hide the spinner while a question is asked."""
        if self._status is None:
            yield
            return
        self._status.stop()
        try:
            yield
        finally:
            self._status.start()


@contextmanager
def working(on: str) -> Iterator[Spinner]:
    """Show a spinner with a text while the block runs, if stderr is a terminal."""
    if not is_rich(sys.stderr):
        yield Spinner(None)
        return
    from rich.console import Console  # slow to import, and only needed here
    from rich.text import Text

    console = Console(file=sys.stderr)
    with console.status(Text(on, style="dim"), spinner_style="cyan") as status:
        yield Spinner(status)


# The terminal


@contextmanager
def unechoed() -> Iterator[None]:
    """Hide characters that the user types meanwhile; the next prompt still receives them."""
    import termios

    if not is_terminal(sys.stdin):
        yield
        return
    number = sys.stdin.fileno()
    before = termios.tcgetattr(number)
    quiet = termios.tcgetattr(number)
    quiet[3] &= ~termios.ECHO
    termios.tcsetattr(number, termios.TCSANOW, quiet)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(number, termios.TCSANOW, before)


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a stream is an open terminal."""
    return stream is not None and not stream.closed and stream.isatty()


def is_rich(stream: TextIO | None) -> bool:
    """Return whether a stream can show colours, signs and progress."""
    if stream is None or not is_terminal(stream):
        return False
    utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
    return utf8 and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _width(stream: TextIO | None = None) -> int:
    try:
        return os.get_terminal_size((stream or sys.stdout).fileno()).columns or 80
    except (OSError, ValueError):
        return 80
