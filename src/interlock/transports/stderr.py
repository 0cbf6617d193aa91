"""What a program that has ended, or does not answer, said about the reason: one line of its stderr.

The last line is often about something else: the version of Node.js, where npm keeps its log, how
to get a backtrace.
"""

from __future__ import annotations

import re

from interlock.errors import MAX_WORDS

_LINES = 100  # the last ones, enough for a usage text; what is further up has been survived

# "ValueError: …", "module.Error: …", "TypeError [ERR_INVALID_ARG_TYPE]: …"; the last one counts.
_RAISED = re.compile(r"(?:[\w$]+\.)*\w*(?:Error|Exception)(?: \[\w+\])?: ")
# "error: …", "npm error …", "panic: …", "thread 'main' panicked at …"; the first one counts.
_SAID = re.compile(r"(?:npm )?(?:error|err!|fatal|panic)\b|thread '.*' panicked at ", re.IGNORECASE)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_FRAME = re.compile(r"\s+at ")  # of a stack


def diagnostics(stderr: str) -> str:
    """Give the error at the end of `stderr` in at most 300 characters, else its last line."""
    lines = [_COLOUR.sub("", line) for line in stderr.rstrip().splitlines()[-_LINES:]]
    raised = [at for at, line in enumerate(lines) if _RAISED.match(line)][-1:]
    said = [at for at, line in enumerate(lines) if _SAID.match(line)][:1]
    for begin in raised or said:
        return " ".join(_paragraph(lines[begin:]).split())[:MAX_WORDS]
    return lines[-1].strip()[:MAX_WORDS] if lines else ""


def words_of(line: bytes) -> str:
    """Give a line of stdout as text; "" for a message, which is no words."""
    if line[:1] in (b"{", b"["):
        return ""
    return " ".join(_COLOUR.sub("", line.decode(errors="replace")).split())


def _paragraph(lines: list[str]) -> str:
    """Give the lines up to a blank one or a stack."""
    ends = (at for at, line in enumerate(lines) if not line.strip() or _FRAME.match(line))
    return " ".join(lines[: next(ends, len(lines))])
