"""Shows developers the exception of a failed call, and the line of their own code.

Clients get no details of a bug by default, because they may contain secrets. With `debug`, a server
on this machine sends them. `interlock.testing` gets the exception itself.
"""

from __future__ import annotations

import linecache
import os
import sysconfig
import traceback
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from pathlib import Path
from urllib.parse import urlsplit

from interlock.context import Context
from interlock.errors import ConfigError, InterlockError
from interlock.protocol import Request
from interlock.server.wire_errors import log_bug
from interlock.text.urls import is_loopback

_Handler = Callable[[Request, Context], Awaitable[bytes]]
_PACKAGE = str(Path(__file__).parents[1])
VARIABLE = "INTERLOCK_DEBUG"
_OFF = ("", "0", "false", "no", "off")
_OF_OTHERS = tuple(
    {
        f"{each}{os.sep}"
        for path in (*map(sysconfig.get_path, ("stdlib", "purelib", "platlib")), _PACKAGE)
        for each in (path, os.path.realpath(path))
    }
)

# Gets each exception that makes a tool fail and the text for the client; returns the text to send.
observer: ContextVar[Callable[[BaseException, str], str] | None] = ContextVar(
    "observer", default=None
)


def is_debugging(given: bool | None) -> bool:
    """Return whether a server shows exceptions: the argument decides, else INTERLOCK_DEBUG."""
    return os.environ.get(VARIABLE, "").lower() not in _OFF if given is None else given


def check_reach(host: str) -> None:
    """Refuse to show exceptions to other machines.

    Raises:
        ConfigError: Other machines can reach the host.
    """
    if not (is_loopback(host) or is_loopback(urlsplit(f"//{host}").hostname or host)):
        raise ConfigError(
            f"debug would send exceptions to other machines, which can reach {host}; listen on "
            f"127.0.0.1, or leave out debug=True and {VARIABLE}"
        )


def debugged(handle: _Handler) -> _Handler:
    """Return a handler whose errors contain the exception and the author's line."""

    async def debugged_handle(request: Request, context: Context) -> bytes:
        if context.address and not is_loopback(context.address):
            return await handle(request, context)
        if observer.get() not in (None, _shown):  # a test gets the exception itself
            return await handle(request, context)
        token = observer.set(_shown)
        try:
            return await handle(request, context)
        except Exception as error:
            if isinstance(error, InterlockError):
                raise
            log_bug(request.method, error)
            raise InterlockError(f"{request.method} failed: {explain(error)}") from error
        finally:
            observer.reset(token)

    return debugged_handle


def _shown(error: BaseException, text: str) -> str:
    """Return a failed call's text with the exception, unless the text is the exception's own."""
    return text if text == str(error) else f"{text}\n{explain(error)}"


def explain(error: BaseException) -> str:
    """Return an exception with the last line of the author's code: file, line and statement."""
    what = "".join(traceback.format_exception_only(error)).strip()
    frames = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if is_of_author(frame.f_code.co_filename)
    ]
    if not frames:
        return what
    file, line, function = frames[-1]
    statement = linecache.getline(file, line).strip()
    place = f"{file}, line {line}, in {function}"
    return f"{what}\n  {place}: {statement}" if statement else f"{what}\n  {place}"


def is_of_author(file: str) -> bool:
    """Return whether a file belongs neither to Python nor to an installed package."""
    return bool(file) and not file.startswith(("<frozen", *_OF_OTHERS))
