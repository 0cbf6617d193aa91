"""The bodies of successful HTTP responses: what they are, and the messages in them.

Servers and proxies mislabel bodies, so the first bytes decide where the label cannot be right.
"""

from __future__ import annotations

import re
from contextlib import suppress

import aiohttp

from interlock.protocol.envelope import BOM
from interlock.protocol.event_stream import SseParser, carries_message
from interlock.protocol.odd_lines import split

JSON = "application/json"
# The charsets of texts only; Python has codecs for other data under such names, too.
_CHARSETS = re.compile(r"iso-?8859-|latin-?1|windows-|cp\d|utf-?16|gb|big5|euc|shift|koi8", re.I)


def media_type(response: aiohttp.ClientResponse) -> str:
    """Return a response's media type in lower case, without parameters; the first of a list."""
    kind = response.headers.get("Content-Type", "").partition(";")[0]
    return kind.partition(",")[0].strip(' \t"').lower()


def may_be_json(kind: str) -> bool:
    """Return whether a body of a media type other than JSON may have a message all the same.

    Servers send types of their own, such as "application/vnd.x+json". For an answer without a type,
    Go's HTTP server writes "text/plain", and PHP and Django write "text/html":
    https://github.com/alorence/django-modern-rpc/issues/44
    """
    is_text = kind.startswith("text/") or "json" in kind or "javascript" in kind
    return is_text or kind in ("", "*/*", "application/octet-stream")


def frames_in(body: bytes, response: aiohttp.ClientResponse, max_bytes: int) -> list[bytes]:
    """Return the messages in an answer, whose first bytes tell its format.

    Servers and proxies mislabel answers. PHP prints its notices before a message:
    https://github.com/Icinga/icingaweb2-module-director/issues/2575
    """
    body = _in_utf8(body, response.charset or "")
    is_labelled = bool(body) and media_type(response) == JSON
    if b'"jsonrpc"' in body and not body.removeprefix(BOM).lstrip().startswith((b"{", b"[")):
        parser = SseParser(max_bytes)
        events = [*parser.feed(body), *parser.finish()]
        if found := [each.data for each in events if carries_message(each)]:
            return found
        return [body] if is_labelled or split(body)[1] else []
    return [body] if is_labelled or b'"jsonrpc"' in body else []


def _in_utf8(body: bytes, charset: str) -> bytes:
    """Return a text that is not UTF-8 in UTF-8, if its label says which charset it has."""
    if not _CHARSETS.match(charset):
        return body
    try:
        body.decode()
    except UnicodeDecodeError:
        with suppress(UnicodeDecodeError, LookupError):
            return body.decode(charset).encode()
    return body
