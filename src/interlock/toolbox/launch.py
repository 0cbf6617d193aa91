"""How a server is launched or reached, as a document to pin. It holds no secret.

Where a variable was filled in, a URL has a query, or the name of an argument says that it is a
secret, a keyed hash stands for the value.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from interlock import config
from interlock.config import HttpServer, OpenApiConfig, PythonServer, ServerConfig, StdioServer
from interlock.text.redaction import masked_arguments
from interlock.transports import InProcessServer
from interlock.types import JsonObject


def launch_of(
    server: ServerConfig | InProcessServer,
    environ: Mapping[str, str],
    key: bytes,
    user: Mapping[str, str] | None = None,
) -> JsonObject:
    """Return the command and arguments of a program, or the URL of another server.

    Args:
        server: As configured.
        environ: Where `${VAR}` is looked up.
        key: Of the hashes.
        user: What `${user:NAME}` stands for. It is in no part of the launch.

    Raises:
        ConfigError: A variable is not set.
    """
    if isinstance(server, StdioServer):
        resolved = config.resolve(server, environ, user)
        pairs = zip(masked_arguments(server.args), resolved.args, strict=True)
        launch: JsonObject = {
            "command": _text(server.command, resolved.command, key),
            "args": [_text(*pair, key) for pair in pairs],
        }
        if server.cwd is not None:
            launch["cwd"] = _text(server.cwd, resolved.cwd or "", key)
        return launch
    if isinstance(server, HttpServer):
        return {"url": _url(server.url, config.resolve(server, environ, user).url, key)}
    if isinstance(server, OpenApiConfig):
        written, filled = server.openapi, config.resolve(server, environ, user).openapi
        return {
            "document": _url(written.document, filled.document, key),
            "baseUrl": _url(written.base_url, filled.base_url, key),
        }
    if isinstance(server, PythonServer):
        return {"object": server.object}
    name = getattr(server, "name", None)
    return {"object": name if isinstance(name, str) else type(server).__qualname__}


def _text(written: str, resolved: str, key: bytes) -> str:
    if written == resolved:
        return written
    text = resolved.encode("utf-8", "surrogatepass")
    return f"{written} ({hmac.digest(key, text, 'sha256')[:16].hex()})"


def _url(written: str, resolved: str, key: bytes) -> str:
    if "${" not in written:
        parts = urlsplit(written)
        host = parts.netloc.rpartition("@")[2]
        written = parts._replace(netloc=host, query="", fragment="").geturl()
    return _text(written, resolved, key)
