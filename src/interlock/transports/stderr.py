"""The reason why a program failed: one line of its stderr.

The last line is often about something else: the version of Node.js, where npm keeps its log, how
to get a backtrace.
"""

from __future__ import annotations

import re

from interlock.errors import MAX_WORDS

_LINES = 100  # at the end: enough for a usage text

# "ValueError: …", "module.Error: …", "TypeError [ERR_INVALID_ARG_TYPE]: …"; the last one counts.
_RAISED = re.compile(r"(?:[\w$]+\.)*\w*(?:Error|Exception)(?: \[\w+\])?: ")
# "error: …", "npm error …", "panic: …", "thread 'main' panicked at …"; the first one counts.
_SAID = re.compile(r"(?:npm )?(?:error|err!|fatal|panic)\b|thread '.*' panicked at ", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\s+at ")  # of a stack


def diagnostics(stderr: str) -> str:
    """Return the error at the end of `stderr`, else its last line; at most 300 characters."""
    lines = [_COLOUR.sub("", line) for line in stderr.rstrip().splitlines()[-_LINES:]]
    raised = [at for at, line in enumerate(lines) if _RAISED.match(line)][-1:]
    said = [at for at, line in enumerate(lines) if _SAID.match(line)][:1]
    for begin in raised or said:
        return " ".join(_paragraph(lines[begin:]).split())[:MAX_WORDS]
    return lines[-1].strip()[:MAX_WORDS] if lines else ""


def stdout_text(line: bytes) -> str:
    """Return a line of stdout as text; "" for a protocol message."""
    if line[:1] in (b"{", b"["):
        return ""
    return " ".join(_COLOUR.sub("", line.decode(errors="replace")).split())


def _paragraph(lines: list[str]) -> str:
    """Join the lines up to a blank one or a stack trace."""
    ends = (at for at, line in enumerate(lines) if not line.strip() or _FRAME.match(line))
    return " ".join(lines[: next(ends, len(lines))])
