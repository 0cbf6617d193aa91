"""What is written for people and for programs.

Text of models, tools and servers is not ours: on a terminal it could move the cursor, hide
words or turn their order round. `safe` makes visible whatever is not plain text, and everything
foreign passes through it. What goes into a file or a pipe stays exactly as it came.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TextIO

import msgspec

# Controls (ESC and C1 among them), and what is invisible or turns the direction of writing:
# soft hyphen, joiners, bidi marks and overrides, fillers, variation selectors, tags, surrogates.
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff\ud800-\udfff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_UNSAFE = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{_INVISIBLE}]")
_UNSAFE_IN_JSON = re.compile(rf"[\x7f-\x9f{_INVISIBLE}]")
# Between letters and signs beyond ASCII these two only shape the script; nothing is lost.
_JOINER = re.compile("(?<=[^\x00-\x7f])[\u200c\u200d](?=[^\x00-\x7f])")
# The one that asks for a coloured sign is common and harmless, once and behind a sign.
_EMOJI = re.compile(f"(?<=[#*0-9\u00a9-\U0001ffff])(?<![{_INVISIBLE}])\ufe0f")
_KEPT = "\ue000"


def safe(text: str) -> str:
    """Return `text` with everything escaped that a terminal would act on or not show.

    Newlines and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace(_KEPT, "\\ue000")
    text = _EMOJI.sub(_KEPT, _JOINER.sub("", text))
    return _UNSAFE.sub(_escape, text).replace(_KEPT, "\ufe0f")


def safe_line(text: str, longest: int | None = None) -> str:
    """As `safe`, on one line of at most `longest` characters."""
    if longest is not None:
        text = text[: 4 * longest]  # enough even if much of it is blank
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
    """Print data on stdout: as it is, or safe for the eyes of a person."""
    print(safe(text) if is_terminal(sys.stdout) else text)


def emit_json(value: object) -> None:
    """Print any value as JSON that can be read on a terminal as well; nothing in it changes."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    print(_UNSAFE_IN_JSON.sub(_escape_in_json, text))


def _escape_in_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def emit_table(rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; on a terminal the last column ends at the edge."""
    lines = [[safe_line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    edge = _width() if is_terminal(sys.stdout) else None
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=True)]
        text = "  ".join(padded).rstrip()
        print(text if edge is None or len(text) <= edge else text[: edge - 1] + "…")


# Talk


def say(text: str) -> None:
    """Tell the person something, on stderr."""
    if sys.stderr is not None:
        print(safe(text), file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Say what the person should know; the work goes on."""
    say(f"warning: {safe_line(text)}")


def complain(text: str) -> None:
    """Say why the work ends."""
    say(f"error: {safe_line(text)}")


@contextmanager
def working(on: str) -> Iterator[Callable[[str], None]]:
    """Show on a terminal that something takes its time; call the result to say what."""
    if not is_rich(sys.stderr):
        yield lambda _: None
        return
    from rich.console import Console  # for those who see it
    from rich.text import Text

    console = Console(file=sys.stderr)
    with console.status(Text(on, style="dim"), spinner_style="cyan") as status:
        yield lambda text: status.update(Text(safe_line(text, _width()), style="dim"))


# Asking about the terminal


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a person looks at this stream (or types into it)."""
    return stream is not None and not stream.closed and stream.isatty()


def is_rich(stream: TextIO | None) -> bool:
    """Whether it can show colours, signs and progress."""
    if stream is None or not is_terminal(stream):
        return False
    utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
    return utf8 and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80
