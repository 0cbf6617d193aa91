"""The library's log, as the commands write it.

Commands print what the user must know. Everything else, such as tool calls with their durations,
is written to the file that INTERLOCK_LOG names. If it names no file, only errors are shown, which
are bugs in interlock; commands that serve others show warnings, too.
"""

from __future__ import annotations

import logging
import os
import sys

from interlock.cli.terminal import safe, safe_line
from interlock.errors import ConfigError

VARIABLE = "INTERLOCK_LOG"


def open_log(shown: int = logging.ERROR) -> None:
    """Send the log to the file named by INTERLOCK_LOG, else to stderr.

    Args:
        shown: The lowest level that is shown on stderr.

    Raises:
        ConfigError: INTERLOCK_LOG names a file that cannot be written.
    """
    handler: logging.Handler
    if path := os.environ.get(VARIABLE):
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            handler = logging.FileHandler(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError(f"{VARIABLE}: {path} cannot be written: {error.strerror}") from None
        level = logging.INFO
    else:
        handler, level = logging.StreamHandler(sys.stderr), shown
    handler.setFormatter(_Plain("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    log = logging.getLogger("interlock")
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False


class _Plain(logging.Formatter):
    """Writes each record on one line, even if a server's text has several; keeps tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return safe_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        return safe(super().formatException(ei))  # type: ignore[arg-type]  # logging's exc_info
