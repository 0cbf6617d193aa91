"""The library's log, as the commands write it.

Commands print what the user must know. Everything else, such as tool calls with their durations,
is written to the file that INTERLOCK_LOG names, or to stderr if it is "-". Without it, only errors
are shown, which are bugs in interlock; commands that serve others show warnings, too.

With INTERLOCK_LOG_FORMAT=json, each line is a JSON object, including the commands' own messages if
the log goes to stderr.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from time import time_ns

import msgspec

from interlock import observing
from interlock.cli.terminal import safe, safe_line, warn, write_messages_by
from interlock.errors import ConfigError
from interlock.text.quoting import replace_surrogates
from interlock.text.timestamps import rfc3339

VARIABLE = "INTERLOCK_LOG"
FORMAT = "INTERLOCK_LOG_FORMAT"
STDERR = "-"
# Members of a record that a line has if the code that logs it states them.
MEMBERS = ("trace_id", "span_id", "call_id", "server", "tool", "outcome", "ms", "reason")


def open_log(shown: int = logging.ERROR) -> None:
    """Send the log to the file named by INTERLOCK_LOG, else to stderr.

    Args:
        shown: The lowest level that is shown on stderr.

    Raises:
        ConfigError: INTERLOCK_LOG names a file that cannot be written, or the format is unknown.
    """
    handler: logging.Handler
    write_messages_by(None)
    is_json = _is_json()
    path = os.environ.get(VARIABLE)
    if path and path != STDERR:
        try:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
            handler = _File(path, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise ConfigError(f"{VARIABLE}: {path} cannot be written: {error.strerror}") from None
        level = logging.INFO
    else:
        handler = logging.StreamHandler(sys.stderr)
        level = logging.INFO if path else shown
    is_on_stderr = not isinstance(handler, logging.FileHandler)
    write_messages_by(_message if is_json and is_on_stderr else None)
    plain = _Plain("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(_Json() if is_json else plain)
    log = logging.getLogger("interlock")
    for former in log.handlers:
        if isinstance(former, logging.FileHandler):
            former.close()
    log.handlers[:] = [handler]
    log.setLevel(level)
    log.propagate = False


def _is_json() -> bool:
    """Return whether the lines of the log are JSON.

    Raises:
        ConfigError: The format is unknown.
    """
    format = os.environ.get(FORMAT, "").strip().lower()
    if format not in ("", "text", "json"):
        raise ConfigError(f'{FORMAT}: unknown format {format!r}; write "json" or "text"')
    return format == "json"


def _message(level: str, text: str) -> str:
    return _line(time_ns() // 1_000, level, "interlock", text, {})


def _line(micros: int, level: str, logger: str, message: str, more: Mapping[str, object]) -> str:
    line = {"ts": rfc3339(micros), "level": level, "logger": logger, "message": message, **more}
    # A lone surrogate in the text of a server cannot be encoded.
    return msgspec.json.encode(replace_surrogates(line)).decode()


def _note_span(line: dict[str, object], observer: observing.Observer) -> None:
    """Add the current span and its call to a line; the record's own call takes precedence."""
    trace = observer.current()
    if trace is not None:
        _, line["trace_id"], line["span_id"], *_ = trace.parent.split("-")
    if "call_id" not in line and (call := observer.current_call()):
        line["call_id"] = call


class _File(logging.FileHandler):
    """The file of the log. If it cannot be written, one warning says so until it can."""

    _fails = False

    def flush(self) -> None:
        super().flush()
        self._fails = False

    def close(self) -> None:
        with suppress(OSError):
            super().close()

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's name
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            super().handleError(record)
        elif not self._fails:
            self._fails = True
            warn(
                f"{VARIABLE}: {self.baseFilename} cannot be written: {error.strerror}; lines are"
                " lost until it can"
            )


class _Json(logging.Formatter):
    """Writes each record as a JSON object on one line, with its traceback as a member."""

    def format(self, record: logging.LogRecord) -> str:
        more = {name: value for name in MEMBERS if (value := getattr(record, name, "")) != ""}
        if observing.observer is not None:
            _note_span(more, observing.observer)
        if record.exc_info:
            more["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            more["stack"] = record.stack_info
        micros, level = int(record.created * 1_000_000), record.levelname.lower()
        return _line(micros, level, record.name, record.getMessage(), more)


class _Plain(logging.Formatter):
    """Writes each record on one line, even if a server's text has several; keeps tracebacks."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        return safe_line(super().formatMessage(record))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        return safe(super().formatException(ei))  # type: ignore[arg-type]  # logging's exc_info
