"""The pages and their files, in memory: HTML shells, modules, styles and fonts.

    /static/VERSION/board/board.js      cached forever, because VERSION is the hash of all files
    {base}/gateway                      a shell: HTML that loads modules, with data as JSON

Data never becomes HTML on the server. A shell contains it in a script element of type
`application/json`, which browsers do not run.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath

from msgspec import Struct

from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import Header, Send
from interlock.types import JsonObject

FOLDER = Path(__file__).parent / "static"
MIN_COMPRESSED = 200  # bytes; smaller files are not compressed
MAX_REPORT = 16 * 1024  # bytes of a browser's report that the content policy was violated
SHARED_STYLES = tuple(f"shared/styles/{each}.css" for each in ("tokens", "base", "frame", "parts"))

_KINDS = {
    ".js": b"text/javascript; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".json": b"application/json",
    ".svg": b"image/svg+xml",
    ".txt": b"text/plain; charset=utf-8",
    ".woff2": b"font/woff2",
}
_VIEWPORT = "width=device-width, initial-scale=1, interactive-widget=resizes-content"
# An import statement, at the start of a line or, in minified files, after another statement.
_IMPORT = re.compile(
    r"""(?:^|;)(?:import|export)\b[^;'"(]*["'](\.{1,2}/[^"']+)["']""", re.MULTILINE
)
# Comments of a module: blocks of JSDoc, and lines that have nothing else.
_COMMENT = re.compile(r"/\*\*.*?\*/|^[ \t]*//[^\n]*", re.DOTALL | re.MULTILINE)
# A page shows this empty frame until its modules have run.
_FRAME = (
    '<div class="frame"><div class="side"><span class="brand"><svg class="icon"></svg>interlock'
    '</span></div><main class="main"></main></div>'
)
_FEATURES = (
    "accelerometer", "autoplay", "camera", "clipboard-read", "display-capture", "fullscreen",
    "geolocation", "gyroscope", "hid", "magnetometer", "microphone", "midi", "payment",
    "picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "serial", "usb",
    "xr-spatial-tracking",
)  # fmt: skip

_log = logging.getLogger("interlock.web")


def policy(frames: Iterable[str] = ()) -> bytes:
    """Return the Content-Security-Policy of a page that may show other origins in frames."""
    rules = [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' blob:",
        "font-src 'self'",
        "connect-src 'self'",
        " ".join(["frame-src 'self'", *frames]),
        "form-action 'none'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types interlock",
        "report-uri /api/csp",
    ]
    return "; ".join(rules).encode()


SECURITY: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", ", ".join(f"{each}=()" for each in _FEATURES).encode()),
)
_FOR_EVER: Header = (b"cache-control", b"public, max-age=31536000, immutable")
_NEVER: Header = (b"cache-control", b"no-store")


class HttpResponse(Struct, frozen=True):
    """A complete HTTP response."""

    status: int
    headers: tuple[Header, ...]
    body: bytes

    async def send(self, send: Send, *, with_body: bool = True) -> None:
        """Send the response over ASGI; leave out the body in answer to a HEAD request."""
        length = (b"content-length", b"%d" % len(self.body))
        headers = [*self.headers, length]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body if with_body else b""})


class Shell(Struct, frozen=True):
    """The description of a page, from which `Files.page` makes its HTML.

    Attributes:
        title: The title until the page's modules set another.
        entry: The module that starts the page, such as "board/board.js".
        styles: The page's style sheets.
        screens: Modules to load at once, in addition to the imports of `entry`.
        later: A module to load once the first screen is shown; "" for no module.
    """

    title: str
    entry: str
    styles: tuple[str, ...]
    screens: tuple[str, ...] = ()
    later: str = ""


async def log_report(request: HttpRequest) -> HttpResponse:
    """Log a browser's report that a page's content policy blocked something."""
    body = await request.read_body(MAX_REPORT)
    _log.warning("content policy: %s", body[:2000].decode("utf-8", "replace"))
    return HttpResponse(204, SECURITY, b"")


class _File(Struct, frozen=True):
    kind: bytes
    body: bytes
    compressed: bytes | None
    etag: bytes


class Files:
    """Serves the files of a folder from memory.

    Attributes:
        version: The hash of all files, which is part of their URLs.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path, folder / "vendor")
            for path in sorted(folder.rglob("*"))
            if path.suffix in _KINDS and path.is_file()
        }
        whole = hashlib.sha256()
        for name, file in self._files.items():
            whole.update(name.encode() + file.etag)
        self.version = whole.hexdigest()[:16]

    @property
    def names(self) -> list[str]:
        return list(self._files)

    def answer(self, path: str, headers: Mapping[bytes, bytes]) -> HttpResponse:
        """Return the response to a GET or HEAD request for a file.

        Args:
            path: The path after `/static/`, such as "VERSION/shared/base.css".
            headers: The request's headers, by lower-case name.
        """
        version, _, name = path.partition("/")
        file = self._files.get(name) if version == self.version else None
        if file is None:
            return not_found()
        plain = (*SECURITY, _FOR_EVER, (b"etag", file.etag), (b"vary", b"accept-encoding"))
        if file.etag in headers.get(b"if-none-match", b""):
            return HttpResponse(304, plain, b"")
        kind: Header = (b"content-type", file.kind)
        if file.compressed is not None and _accepts_gzip(headers):
            encoding: Header = (b"content-encoding", b"gzip")
            return HttpResponse(200, (kind, encoding, *plain), file.compressed)
        return HttpResponse(200, (kind, *plain), file.body)

    def page(
        self,
        shell: Shell,
        data: JsonObject,
        headers: Mapping[bytes, bytes],
        *,
        status: int = 200,
        frames: Iterable[str] = (),
    ) -> HttpResponse:
        """Return a page's HTML with its data.

        Args:
            shell: The page.
            data: The data for the page's modules, which read the element with the id "data".
            headers: The request's headers.
            status: The HTTP status.
            frames: Other origins whose pages may be shown in frames.
        """
        plain: tuple[Header, ...] = (
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-security-policy", policy(frames)),
            *SECURITY,
            _NEVER,
        )
        static = f"/static/{self.version}/"
        if shell.later:
            data = {**data, "later": [f"{static}{each}" for each in self.later(shell)]}
        body = self._html(shell, data, static).encode()
        if not _accepts_gzip(headers):
            return HttpResponse(status, plain, body)
        return HttpResponse(
            status, ((b"content-encoding", b"gzip"), *plain), gzip.compress(body, 5)
        )

    def _html(self, shell: Shell, data: JsonObject, static: str) -> str:
        # "<" could end the script element, so it is escaped wherever it occurs.
        text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        preloads = [
            f'<link rel="modulepreload" href="{static}{each}"{_kind_of(each)}>'
            for each in self._graph(shell.entry, *shell.screens)
        ]
        sheets = [f'<link rel="stylesheet" href="{static}{each}">' for each in shell.styles]
        fonts = [
            f'<link rel="preload" href="{static}vendor/{each}.woff2" as="font" '
            'type="font/woff2" fetchpriority="low" crossorigin>'  # text is shown without them
            for each in ("inter", "jetbrains-mono")
        ]
        return "\n".join(
            [
                "<!doctype html>",
                '<html lang="en" class="starting">',
                "<head>",
                '<meta charset="utf-8">',
                f'<meta name="viewport" content="{_VIEWPORT}">',
                '<meta name="color-scheme" content="light dark">',
                f"<title>{shell.title}</title>",
                f'<link rel="icon" href="{static}shared/icon.svg" type="image/svg+xml">',
                f'<script src="{static}shared/theme.js"></script>',
                *sheets,
                *fonts,
                *preloads,
                f'<script type="module" src="{static}{shell.entry}"></script>',
                f'<script type="application/json" id="data">{text}</script>',
                "</head>",
                "<body>",
                f'<div id="app"><noscript>This page needs JavaScript.</noscript>{_FRAME}</div>',
                "</body>",
                "</html>",
                "",
            ]
        )

    def later(self, shell: Shell) -> list[str]:
        first = self.modules(shell.entry, *shell.screens)
        return [each for each in self.modules(shell.later) if each not in first]

    def modules(self, *entries: str) -> list[str]:
        """Return these modules and all modules they import, in the order in which they load."""
        return [each for each in self._graph(*entries) if each.endswith(".js")]

    @lru_cache(maxsize=256)  # noqa: B019  (one instance for each process)
    def _graph(self, *entries: str) -> tuple[str, ...]:
        """Return these modules, all modules they import, and the imported JSON files."""
        found: dict[str, None] = {}
        waiting = list(entries)
        while waiting:
            name = waiting.pop(0)
            if name not in found:
                found[name] = None
                waiting += self._imports(name) if name.endswith(".js") else ()
        return tuple(found)

    def _imports(self, name: str) -> Iterator[str]:
        folder = PurePosixPath(name).parent
        for path in _IMPORT.findall(self._files[name].body.decode()):
            yield _normal(folder / path)


@cache
def files_of_package() -> Files:
    """Return the package's web files, which are read and compressed once per process."""
    return Files()


def without_comments(module: str) -> str:
    """Return a module without its comments, and with the same lines.

    Comments are a seventh of the compressed size. They must begin with `/**`, or stand alone on
    their lines: a template must have no such line.
    """
    return _COMMENT.sub(lambda comment: "\n" * comment[0].count("\n"), module)


def not_found() -> HttpResponse:
    """Return the 404 response for a path that does not exist."""
    kind: Header = (b"content-type", b"text/plain; charset=utf-8")
    return HttpResponse(404, (kind, *SECURITY, _NEVER), b"not found\n")


def _read(path: Path, vendor: Path) -> _File:
    body = path.read_bytes()
    if path.suffix == ".js" and vendor not in path.parents:
        body = without_comments(body.decode()).encode()
    etag = b'"' + hashlib.sha256(body).hexdigest()[:20].encode() + b'"'
    compressed = None
    if path.suffix != ".woff2" and len(body) >= MIN_COMPRESSED:
        compressed = gzip.compress(body, 9, mtime=0)
    return _File(_KINDS[path.suffix], body, compressed, etag)


def _accepts_gzip(headers: Mapping[bytes, bytes]) -> bool:
    codings = headers.get(b"accept-encoding", b"").replace(b" ", b"").split(b",")
    return any(each == b"gzip" or each.startswith(b"gzip;q=1") for each in codings)


def _kind_of(module: str) -> str:
    return ' as="json"' if module.endswith(".json") else ""


def _normal(path: PurePosixPath) -> str:
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)
