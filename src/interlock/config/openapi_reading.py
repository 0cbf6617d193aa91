"""Reads a server's member `openapi`: the document, its base URL, credentials and tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from interlock.config.openapi import (
    ApiClient,
    ApiCredential,
    ApiDocument,
    ApiLogin,
    ApiPassword,
    ApiSecret,
)
from interlock.config.section import Section
from interlock.text import urls
from interlock.types import JsonObject

MAX_TOOLS = 1_000
MAX_ANSWER_BYTES = 64 * 1024 * 1024

_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ARGUMENT_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TOOL_KEYS = (
    "operation",
    "title",
    "description",
    "arguments",
    "annotations",
    "risk",
    "body",
    "contentType",
    "output",
    "accept",
    "maxAnswerBytes",
)
_BOUNDS = ("minimum", "maximum")
_ARGUMENT_KEYS = ("name", "description", "default", "value", "hide", "slashes", "enum", *_BOUNDS)
_HINTS = ("readOnly", "destructive", "idempotent", "openWorld")


def read(section: Section, path: Path | None) -> ApiDocument:
    """Return the settings in the member `openapi`.

    Args:
        section: The section of the member.
        path: The configuration file; a relative document path starts at this file's folder.

    Raises:
        ConfigError: The member is not valid.
    """
    section.warn_unknown(("document", "baseUrl", "auth", "tools", "allowHttp"))
    section.need("document", "baseUrl")
    auth = section.within("auth")
    return ApiDocument(
        document=_document(section, path),
        base_url=_base_url(section),
        auth={name: _credential(auth, name) for name in auth.members},
        tools=_tools(section),
        allow_http=section.flag("allowHttp", False),
    )


def base_url_problem(url: str) -> str | None:
    """Return what is wrong with a base URL; None if it is valid."""
    if problem := urls.problem(url):
        return problem
    if "@" in urlsplit(url).netloc:
        return 'must not contain a user; add credentials to "auth" or "headers"'
    if "?" in url or "#" in url:
        return "must not contain a query or a fragment"
    return None


def document_problem(document: str) -> str | None:
    """Return what is wrong with a document's path or URL; None if it is valid."""
    if "://" not in document:
        return None
    parts = urlsplit(document)
    if parts.scheme == "https" and parts.hostname:
        return None
    if parts.scheme == "http" and urls.is_loopback(parts.hostname or ""):
        return None
    return "must be a path, a URL with https://, or one with http:// on this machine"


def _document(section: Section, path: Path | None) -> str:
    document = section.filled("document")
    if "${" in document:
        return document
    if problem := document_problem(document):
        section.refuse(problem, "document")
    if "://" in document:
        return document
    folder = path.parent if path is not None else Path()
    return str(folder / Path(document).expanduser())


def _base_url(section: Section) -> str:
    url = section.filled("baseUrl")
    if "${" not in url and (problem := base_url_problem(url)):
        section.refuse(problem, "baseUrl")
    return url


# Credentials


def _credential(auth: Section, name: str) -> ApiCredential:
    if isinstance(auth.members[name], str):
        return ApiSecret(auth.filled(name))
    each = auth.within(name)
    if "login" in each.members:
        each.refuse_unknown(("login", "clientId", "clientSecret", "scopes"))
        if not each.flag("login", False):
            each.refuse("must be true, or the whole credential left out", "login")
        if "clientSecret" in each.members:
            each.need("clientId")
        return ApiLogin(
            client_id=each.optional("clientId"),
            client_secret=each.optional("clientSecret"),
            scopes=each.texts("scopes"),
        )
    if "username" in each.members or "password" in each.members:
        each.refuse_unknown(("username", "password"))
        each.need("username", "password")
        return ApiPassword(each.filled("username"), each.text("password"))
    if "clientId" in each.members or "clientSecret" in each.members:
        return _client(each)
    return each.refuse(
        'must be a text, {"username", "password"}, {"clientId", "clientSecret"} or {"login": true}'
    )


def _client(each: Section) -> ApiClient:
    each.refuse_unknown(("clientId", "clientSecret", "scopes", "tokenUrl"))
    each.need("clientId", "clientSecret")
    token_url = each.optional("tokenUrl")
    if token_url and "${" not in token_url and (problem := base_url_problem(token_url)):
        each.refuse(problem, "tokenUrl")
    return ApiClient(
        client_id=each.filled("clientId"),
        client_secret=each.filled("clientSecret"),
        scopes=each.texts("scopes"),
        token_url=token_url,
    )


# Tools


def _tools(section: Section) -> dict[str, JsonObject]:
    """Read the tools: an object keyed by tool name, or a list of objects with names."""
    if isinstance(section.members.get("tools"), list):
        return _listed_tools(section)
    table = section.within("tools")
    if len(table.members) > MAX_TOOLS:
        table.refuse(f"has {len(table.members):,} tools, over the limit of {MAX_TOOLS:,}")
    found: dict[str, JsonObject] = {}
    for name, value in table.members.items():
        if not _TOOL_NAME.fullmatch(name):
            table.refuse("must be a name of 1 to 64 letters, digits, _ and -", name)
        if isinstance(value, str):
            found[name] = {"operation": table.filled(name)}
        else:
            found[name] = _tool(table.within(name))
    return found


def _listed_tools(section: Section) -> dict[str, JsonObject]:
    found: dict[str, JsonObject] = {}
    for each in section.each("tools"):
        each.need("name")
        name = each.filled("name")
        if not _TOOL_NAME.fullmatch(name):
            each.refuse("must be a name of 1 to 64 letters, digits, _ and -", "name")
        if name in found:
            each.refuse("is the name of another tool in the list", "name")
        found[name] = _tool(each, "name")
    if len(found) > MAX_TOOLS:
        section.refuse(f"has {len(found):,} tools, over the limit of {MAX_TOOLS:,}", "tools")
    return found


def _tool(tool: Section, *more: str) -> JsonObject:
    """Check the settings of one tool in the file; refuse unknown members.

    Ignoring a misspelled constant or risk would allow more than the operator meant.
    """
    tool.refuse_unknown((*_TOOL_KEYS, *more))
    tool.need("operation")
    for key in ("operation", "title", "description", "contentType", "accept"):
        if key in tool.members:
            tool.filled(key)
    if "risk" in tool.members:
        tool.choice("risk", ("read", "write"))
    if "body" in tool.members:
        tool.choice("body", ("flat", "nested"))
    if "output" in tool.members:
        tool.choice("output", ("declared", "none"))
    if "maxAnswerBytes" in tool.members:
        tool.count("maxAnswerBytes", 1, MAX_ANSWER_BYTES)
    hints = tool.within("annotations")
    hints.refuse_unknown(_HINTS)
    for key in hints.members:
        hints.flag(key, False)
    arguments = tool.within("arguments")
    for key in arguments.members:
        _argument(arguments.within(key))
    return {key: value for key, value in tool.members.items() if key not in more}


def _argument(argument: Section) -> None:
    argument.refuse_unknown(_ARGUMENT_KEYS)
    members: dict[str, Any] = argument.members
    if "name" in members and not _ARGUMENT_NAME.fullmatch(argument.filled("name")):
        argument.refuse("must be 1 to 64 letters, digits, _, . and -", "name")
    if "description" in members:
        argument.text("description")
    for key in ("hide", "slashes"):
        argument.flag(key, False)
    if "enum" in members and not (isinstance(members["enum"], list) and members["enum"]):
        argument.refuse("must be a list of values", "enum")
    for key in _BOUNDS:
        if key in members and not _is_number(members[key]):
            argument.refuse("must be a number", key)
    if "value" in members:
        for key in ("name", "default", "hide", "enum", *_BOUNDS):
            if key in members:
                argument.refuse('cannot be combined with "value", which is always sent', key)
    if "default" in members and argument.flag("hide", False):
        argument.refuse('cannot be combined with "hide": write "value" instead', "default")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
