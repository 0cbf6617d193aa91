"""A server's declarations about an MCP app, and the content policy of the app's document."""

from __future__ import annotations

import base64
import ipaddress
import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from interlock.calls import Entry
from interlock.errors import InterlockError
from interlock.server.http.json_api import Problem
from interlock.types import JsonObject, ReadResourceResult, ResourceContents

EXTENSION = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
SUPPORT: JsonObject = {EXTENSION: {"mimeTypes": [MIME]}}
MAX_HOSTS = 32  # hosts that an app may declare for one purpose
MAX_DOCUMENT = 8 * 1024 * 1024  # bytes
_HOST = re.compile(r"(https|wss)://((?:\*\.)?(?:[a-z0-9-]+\.)+[a-z0-9-]+)(:[0-9]{1,5})?/?")


class AppDocument(Struct, frozen=True):
    """An app's HTML document, and the headers and options it is shown with.

    Attributes:
        body: The HTML.
        policy: The Content-Security-Policy of its response.
        has_border: Whether the page draws a border around the document.
        has_domain: Whether the app gets an origin of its own, because it declares a domain.
    """

    body: bytes
    policy: bytes
    has_border: bool
    has_domain: bool = False

    @staticmethod
    def of(
        result: ReadResourceResult, uri: str, listed: Iterable[JsonObject], page: str = ""
    ) -> AppDocument:
        """Return the app's document from the result of `resources/read`.

        Args:
            result: The result, as the server returned it.
            uri: The URI of the resource.
            listed: The server's list of resources. Its `_meta` about the app applies if the
                result has none.
            page: The origin of the page that shows the app, if apps with a domain get their own
                origins; "" otherwise.

        Raises:
            Problem: The result has no document that can be shown.
        """
        found = next((each for each in result.contents if each.uri == uri), None)
        if found is None or (found.mime_type or "").replace(" ", "") != MIME:
            raise unavailable(f"the app is not a document of type {MIME}")
        metas = [found.meta, *(each.get("_meta") for each in listed if each.get("uri") == uri)]
        told = (each["ui"] for each in metas if isinstance(each, dict) and "ui" in each)
        about: JsonObject = next((each for each in told if isinstance(each, dict)), {})
        has_border = about.get("prefersBorder") is not False
        has_domain = bool(page) and isinstance(about.get("domain"), str)
        policy = app_policy(about.get("csp"), page if has_domain else "")
        return AppDocument(_body_of(found), policy, has_border, has_domain)


def unavailable(why: str | InterlockError) -> Problem:
    """Return a `Problem` for an app that cannot be shown."""
    text = f"the app cannot be read: {why}" if isinstance(why, InterlockError) else why
    return Problem(502, "app_unavailable", text)


def _body_of(found: ResourceContents) -> bytes:
    try:
        body = base64.b64decode(found.blob) if found.blob else (found.text or "").encode()
    except ValueError:
        raise unavailable("the app's document is not valid Base64") from None
    if len(body) > MAX_DOCUMENT:
        raise unavailable(
            f"the app's document is too large ({len(body):,} bytes, limit {MAX_DOCUMENT:,})"
        )
    return body


class AppTool(Struct, frozen=True):
    """A tool's declaration of its app.

    Attributes:
        uri: The URI of the app's document; "" if the tool has no app.
        visibility: The callers that may use the tool: "model", "app" or both.
    """

    uri: str = ""
    visibility: tuple[str, ...] = ("model", "app")


def app_of(entry: Entry) -> AppTool:
    """Return a tool's declaration of its app; its `uri` is "" if the tool has no app."""
    meta: JsonObject = entry.tool.meta or {}
    told = meta.get("ui")
    about: JsonObject = told if isinstance(told, dict) else {}
    uri = about.get("resourceUri") or meta.get("ui/resourceUri") or ""  # the older key
    listed = about.get("visibility")
    given = listed if isinstance(listed, list) else ["model", "app"]
    is_ours = isinstance(uri, str) and uri.startswith("ui://")
    return AppTool(uri if is_ours else "", tuple(str(each) for each in given))


def app_policy(declared: Any, page: str = "") -> bytes:
    """Return the Content-Security-Policy for an app's document.

    Args:
        declared: `csp` in the resource's `_meta.ui`: URLs of hosts by purpose. The policy leaves
            out hosts that are not public, and URLs that are not https (or wss, for connections).
        page: The origin of the page that shows the app, if the document has its own origin; "" if
            it shares that of the page. The policy then gives the document an opaque origin.
    """
    sandbox = "sandbox allow-scripts allow-forms"
    told = declared if isinstance(declared, dict) else {}
    loads = _hosts(told.get("resourceDomains"), "https")
    connects = _hosts(told.get("connectDomains"), "https", "wss")
    frames = _hosts(told.get("frameDomains"), "https")
    bases = _hosts(told.get("baseUriDomains"), "https")
    rules = (
        f"{sandbox} allow-same-origin" if page else sandbox,
        "default-src 'none'",
        " ".join(["script-src 'unsafe-inline'", *loads]),
        " ".join(["style-src 'unsafe-inline'", *loads]),
        " ".join(["img-src data: blob:", *loads]),
        " ".join(["font-src data:", *loads]),
        " ".join(["media-src data: blob:", *loads]),
        " ".join(["connect-src", *(connects or ["'none'"])]),
        " ".join(["frame-src", *(frames or ["'none'"])]),
        " ".join(["base-uri", *(bases or ["'none'"])]),
        "form-action 'none'",
        " ".join(["frame-ancestors", page or "'self'"]),
    )
    return "; ".join(rules).encode()


def _hosts(listed: Any, *schemes: str) -> list[str]:
    if not isinstance(listed, list):
        return []
    found = []
    for each in listed[:MAX_HOSTS]:
        match = _HOST.fullmatch(each) if isinstance(each, str) else None
        if match is not None and match[1] in schemes and _is_public(match[2]):
            found.append(each.rstrip("/"))
    return found


def _is_public(host: str) -> bool:
    """Return whether a host is a public name, not this machine or a host in a local network."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        last = host.rsplit(".", 1)[-1]
        return not last.isdecimal() and last not in ("localhost", "local", "internal", "arpa")
    return False
