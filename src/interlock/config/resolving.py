"""Replacement of variables in a server's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from interlock.config import openapi_reading, variables
from interlock.config.openapi import ApiCredential, ApiDocument
from interlock.config.servers import HttpServer, OpenApiConfig, PythonServer, StdioServer
from interlock.errors import ConfigError
from interlock.text import urls

_Server = TypeVar("_Server", StdioServer, HttpServer, OpenApiConfig, PythonServer)
# Replaces the variables in a text; called with the text and its place in the configuration.
Expand = Callable[[str, str], str]
ExpandAll = Callable[[dict[str, str], str], dict[str, str]]


def _file_variables(server: StdioServer, expand: Expand) -> dict[str, str]:
    if server.env_file is None:
        return {}
    path = Path(expand(server.env_file, "envFile")).expanduser()
    try:
        return variables.parse_file(path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"envFile {path} cannot be read: {reason}") from None


def env_file_of(server: StdioServer, environ: Mapping[str, str]) -> Path | None:
    """Return the path of a server's file of variables; None if it has none.

    Raises:
        ConfigError: A variable in the path is not set and has no default.
    """
    if server.env_file is None:
        return None
    return Path(variables.fill(server.env_file, "envFile", environ)).expanduser()


def resolve(
    server: _Server, environ: Mapping[str, str], user: Mapping[str, str] | None = None
) -> _Server:
    """Return the server after replacing `${VAR}`, `${env:VAR}` and `${VAR:-default}`.

    A default also replaces a variable whose value is empty.

    Args:
        server: The configured server.
        environ: The environment variables.
        user: The values for `${user:NAME}`, keyed by NAME; None if the call is for no user. In the
            configuration of an API, such references stay unchanged.

    Raises:
        ConfigError: A variable is not set and has no default, or a result is not valid.
    """
    if isinstance(server, PythonServer):
        return server
    known = variables.with_known(environ, server.known)

    def expand(text: str, place: str) -> str:
        # In an API's settings, `${user:NAME}` is replaced in each request, unless all requests are
        # made for the same user.
        has_user = any(name.startswith(variables.USER) for name in server.known)
        is_for_all = isinstance(server, OpenApiConfig) and not has_user
        return variables.fill(text, place, known, variables.kept(text) if is_for_all else user)

    def expand_all(values: dict[str, str], place: str) -> dict[str, str]:
        return {name: expand(value, f"{place}.{name}") for name, value in values.items()}

    if isinstance(server, OpenApiConfig):
        return msgspec.structs.replace(
            server,
            openapi=_resolved_api(server.openapi, expand),
            headers=_expanded_headers(server.headers, expand_all),
        )
    if isinstance(server, HttpServer):
        return msgspec.structs.replace(server, **_http_members(server, expand, expand_all))
    return msgspec.structs.replace(
        server,
        command=expand(server.command, "command"),
        args=_expanded(server.args, expand, "args"),
        env=_file_variables(server, expand) | expand_all(server.env, "env"),
        env_file=None,
        cwd=None if server.cwd is None else expand(server.cwd, "cwd"),
        roots=_expanded(server.roots, expand, "roots"),
    )


def _expanded(texts: tuple[str, ...], expand: Expand, place: str) -> tuple[str, ...]:
    return tuple(expand(text, f"{place}[{index}]") for index, text in enumerate(texts))


def _http_members(server: HttpServer, expand: Expand, expand_all: ExpandAll) -> dict[str, Any]:
    url = expand(server.url, "url")
    if problem := urls.problem(url):
        raise ConfigError(f"url {problem}")
    oauth = msgspec.structs.replace(
        server.oauth,
        client_id=expand(server.oauth.client_id, "oauth.clientId"),
        client_secret=expand(server.oauth.client_secret, "oauth.clientSecret"),
    )
    return {
        "url": url,
        "headers": _expanded_headers(server.headers, expand_all),
        "oauth": oauth,
        "roots": _expanded(server.roots, expand, "roots"),
    }


def _expanded_headers(headers: dict[str, str], expand_all: ExpandAll) -> dict[str, str]:
    expanded = expand_all(headers, "headers")
    for name, value in expanded.items():
        if problem := header_problem(value):
            raise ConfigError(f"headers.{name} {problem}")
    return expanded


def _resolved_api(api: ApiDocument, expand: Expand) -> ApiDocument:
    document = expand(api.document, "openapi.document")
    base_url = expand(api.base_url, "openapi.baseUrl")
    if problem := openapi_reading.document_problem(document):
        raise ConfigError(f"openapi.document {problem}")
    if problem := openapi_reading.base_url_problem(base_url):
        raise ConfigError(f"openapi.baseUrl {problem}")
    auth = {name: _resolved_credential(name, each, expand) for name, each in api.auth.items()}
    return msgspec.structs.replace(api, document=document, base_url=base_url, auth=auth)


def _resolved_credential(name: str, credential: ApiCredential, expand: Expand) -> ApiCredential:
    members = {
        member: expand(value, f"openapi.auth.{name}.{member}")
        for member, value in msgspec.structs.asdict(credential).items()
        if isinstance(value, str)
    }
    return msgspec.structs.replace(credential, **members)


def header_problem(value: str) -> str | None:
    """Return why a text is not a valid header value; None if it is valid."""
    printable = all(char == "\t" or char.isprintable() for char in value)
    return None if printable else "has a line break or another control character"
