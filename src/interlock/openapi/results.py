"""An API's answer as a tool result: text for the model, and structured content."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, unquote, urljoin, urlsplit

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from interlock import schema
from interlock.errors import SchemaError
from interlock.layers.results import MAX_MEDIA
from interlock.openapi.answers import EVENTS, ApiAnswer
from interlock.openapi.drift import fitting
from interlock.openapi.identity import mask
from interlock.openapi.operations import Operation, is_json
from interlock.openapi.sending import REDIRECTS, redirect_target
from interlock.protocol.envelope import encode, encode_lossy
from interlock.text.surrogates import repair_json
from interlock.transports.http_errors import retry_after
from interlock.types import (
    AudioContent,
    CallToolResult,
    Content,
    EmbeddedResource,
    ImageContent,
    JsonObject,
    ResourceContents,
    ResourceLink,
    TextContent,
)

META_KEY = "interlock/http"
_SHOWN_HEADERS = (
    "etag",
    "last-modified",
    "location",
    "retry-after",
    "x-total-count",
    "x-request-id",
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
    "ratelimit-limit",
    "ratelimit-remaining",
    "ratelimit-reset",
    "ratelimit",
)
_CURSOR_HEADERS = {"x-next-page": "page", "x-next-cursor": "cursor"}
_TEXT_TYPES = re.compile(
    r"text/.*|application/(?:xml|yaml|x-yaml|x-ndjson|ndjson|jsonl|csv|javascript|graphql"
    r"|x-www-form-urlencoded)|.*\+(?:xml|yaml)"
)
_LINK = re.compile(r'<([^>]*)>((?:\s*;\s*[\w*-]+\s*=\s*(?:"[^"]*"|[^",;]*))*)')
_NOT_TEXT = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_FILE_NAME = re.compile(r'filename\*?\s*=\s*(?:UTF-8\'\')?"?([^";]+)"?', re.IGNORECASE)


# Python needs quadratic time to decode these charsets, and no API uses them.
_SLOW_CHARSETS = frozenset({"punycode", "idna"})


_MAX_LINK = 4_096  # characters


class Shape:
    """The form in which a tool returns its results.

    Args:
        output_schema: The declared shape of the structured content; None if it is not declared.
        is_structured: Whether JSON answers are returned as structured content as well.
        arguments: The tool's argument names, keyed by place and parameter name.

    Attributes:
        empty: The structured content for an answer without a body.
    """

    def __init__(
        self,
        operation: Operation,
        output_schema: JsonObject | None,
        is_structured: bool,
        arguments: Mapping[tuple[str, str], str],
    ) -> None:
        self.operation = operation
        self.output_schema = output_schema
        self.is_structured = is_structured
        self.arguments = arguments
        self.empty: Any = UNSET
        if output_schema is not None:
            kinds = output_schema.get("type", "object")
            is_array = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
            self.empty = [] if is_array else {}

    @cached_property
    def _validator(self) -> schema.Validator | None:
        with suppress(SchemaError):
            return schema.compile(encode(self.output_schema))
        return None

    def fits(self, value: Any) -> bool:
        """Return whether a value certainly has the declared shape."""
        return self._validator is not None and not self._validator.errors(value, echo=False)


def success(
    answer: ApiAnswer, shape: Shape, secrets: Iterable[str], drifts: list[str]
) -> CallToolResult:
    """Return the tool result for an answer with a status below 400.

    Args:
        shape: The form of the tool's results.
        secrets: Texts to mask in the result.
        drifts: A list to which each difference from the document is added.
    """
    if answer.status in REDIRECTS:
        return _elsewhere(answer, redirect_target(answer), shape, secrets)
    drifts += declared(answer, shape.operation)
    meta = {META_KEY: meta_of(answer, secrets)}
    if not answer.body:
        lines = [f"Done ({answer.status}).", *_notes(answer, shape, secrets)]
        return CallToolResult(
            content=[TextContent(text="\n".join(lines))], structured_content=shape.empty, meta=meta
        )
    content, structured = _body(answer, shape, secrets, drifts)
    notes = _notes(answer, shape, secrets)
    if notes:
        content.append(TextContent(text="\n".join(notes)))
    return CallToolResult(content=content, structured_content=structured, meta=meta)


def declared(answer: ApiAnswer, operation: Operation) -> list[str]:
    """Describe how an answer's status and media type differ from the document."""
    response = find_response(operation, answer.status)
    if response is None:
        return [f"status {answer.status} is not declared"]
    media_type = answer.media_type
    if not (answer.body and response.media_types and media_type):
        return []
    for name in response.media_types:
        pattern = name.partition(";")[0].strip().lower()
        if media_type == pattern or _matches(media_type, pattern):
            return []
    return [f"media type {media_type} of status {answer.status} is not declared"]


def find_response(operation: Operation, status: int) -> Any:
    """Return the response that the document declares for a status; None if it declares none."""
    for key in (str(status), f"{status // 100}XX", "DEFAULT"):
        for each in operation.responses:
            if each.status.upper() == key:
                return each
    return None


def _matches(media_type: str, pattern: str) -> bool:
    if pattern == "*/*":
        return True
    main, _, sub = pattern.partition("/")
    return sub == "*" and media_type.startswith(f"{main}/")


# Bodies


def _body(
    answer: ApiAnswer, shape: Shape, secrets: Iterable[str], drifts: list[str]
) -> tuple[list[Content], Any]:
    """Return the content blocks and the structured content for an answer's body."""
    media_type = answer.media_type
    if (is_json(media_type) and "*" not in media_type) or (
        not media_type and answer.body.lstrip()[:1] in (b"{", b"[")
    ):
        return _json(answer, shape, secrets, drifts)
    if media_type == EVENTS:
        text = mask(text_of(answer), secrets)
        return [TextContent(text=text)], shape.empty
    if _TEXT_TYPES.fullmatch(media_type) or (not media_type and _is_text(answer.body)):
        return [TextContent(text=mask(text_of(answer), secrets))], shape.empty
    return [_media(answer)], shape.empty


def _json(
    answer: ApiAnswer, shape: Shape, secrets: Iterable[str], drifts: list[str]
) -> tuple[list[Content], Any]:
    body = answer.body.removeprefix(b"\xef\xbb\xbf")
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if (repaired := repair_json(body)) != body:
            return _json(replace(answer, body=repaired), shape, secrets, drifts)
        if not answer.is_cut:
            drifts.append("the body is not valid JSON")
        if _is_text(body):
            return [TextContent(text=mask(text_of(answer), secrets))], shape.empty
        return [_media(answer)], shape.empty
    # Remove indentation, because it costs the model more tokens than it is worth.
    is_indented = b"\n" in body[:200]
    whole = (encode_lossy(value) if is_indented else body).decode("utf-8", "replace")
    text = mask(whole, secrets)
    if not shape.is_structured:
        return [TextContent(text=text)], UNSET
    if text != whole and not _is_valid(text):  # masking a number broke the JSON
        return [TextContent(text=text)], shape.empty
    if shape.output_schema is None or shape.fits(value):
        return [TextContent(text=text)], Raw(text.encode())
    fitted, places = fitting(value, shape.output_schema, shape.empty)
    drifts += places
    if not places:
        return [TextContent(text=text)], Raw(text.encode())
    return [TextContent(text=text)], Raw(mask(encode_lossy(fitted).decode(), secrets).encode())


def _is_valid(text: str) -> bool:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def text_of(answer: ApiAnswer) -> str:
    """Decode a text by its charset, else as UTF-8, else as Latin-1."""
    body = answer.body
    for charset in filter(None, (answer.charset, "utf-8-sig")):
        if charset.lower() in _SLOW_CHARSETS:
            continue
        try:
            return body.decode(charset)
        except UnicodeDecodeError as error:
            if answer.is_cut and error.start >= len(body) - 4:  # the cut is within a character
                return body[: error.start].decode(charset)
        except (LookupError, UnicodeError):
            continue
    return body.decode("latin-1")


def _is_text(body: bytes) -> bool:
    try:
        return not _NOT_TEXT.search(body.decode())
    except UnicodeDecodeError:
        return False


def _media(answer: ApiAnswer) -> Content:
    """Return a binary body as an image, audio, or an embedded resource."""
    data = b64encode(answer.body).decode()
    media_type = answer.media_type or "application/octet-stream"
    is_small = len(answer.body) <= MAX_MEDIA and not answer.is_cut
    if media_type.startswith("image/") and is_small:
        return ImageContent(data=data, mime_type=media_type)
    if media_type.startswith("audio/") and is_small:
        return AudioContent(data=data, mime_type=media_type)
    return EmbeddedResource(
        resource=ResourceContents(
            uri=f"file:///{_file_name(answer)}", mime_type=media_type, blob=data
        )
    )


def _file_name(answer: ApiAnswer) -> str:
    match = _FILE_NAME.search(answer.headers.get("content-disposition", ""))
    name = unquote(match[1]) if match else unquote(urlsplit(answer.url).path.rpartition("/")[2])
    name = re.sub(r"[^\w.() -]+", "_", name.rpartition("/")[2]).strip(" .")
    return name[:120] or "answer"


# Notes


def _notes(answer: ApiAnswer, shape: Shape, secrets: Iterable[str]) -> list[str]:
    notes = []
    location = answer.headers.get("location", "")
    wait = None
    if answer.status == 202:
        wait = retry_after(answer.headers.get("retry-after", ""))
    if wait is not None:
        notes.append(f"Accepted; call again after {wait:g} s.")
    elif answer.status in (201, 202) and location:
        verb = "Created" if answer.status == 201 else "Accepted"
        notes.append(f"{verb}: {mask(_path(location), secrets)}")
    if answer.is_cut:
        notes.append(f"The answer is cut off after {len(answer.body):,} bytes.")
    if answer.is_unfinished:
        notes.append("The stream was still open at the time limit.")
    if following := next_page(answer, shape.arguments):
        pairs = " ".join(f"{name}={mask(value, secrets)}" for name, value in following.items())
        notes.append(f"More: call again with {pairs}")
    return notes


def _path(location: str) -> str:
    try:
        parts = urlsplit(location)
    except ValueError:
        return location
    return f"{parts.path}?{parts.query}" if parts.query else parts.path or location


def next_page(answer: ApiAnswer, arguments: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Return the tool arguments that request the next page; {} if this is the last page."""
    for header, name in _CURSOR_HEADERS.items():
        value = answer.headers.get(header, "").strip()
        if value and ("query", name) in arguments:
            return {arguments["query", name]: value}
    for target, parameters in _LINK.findall(answer.headers.get("link", "")[:_MAX_LINK]):
        if not re.search(r'rel\s*=\s*"?[^"]*\bnext\b', parameters):
            continue
        try:
            following = urlsplit(urljoin(answer.url, target))
        except ValueError:
            return {}
        current = urlsplit(answer.url)
        if following.path != current.path:
            return {}
        sent = set(parse_qsl(current.query, keep_blank_values=True))
        changed = [
            each for each in parse_qsl(following.query, keep_blank_values=True) if each not in sent
        ]
        return {
            arguments["query", name]: value
            for name, value in changed
            if ("query", name) in arguments
        }
    return {}


def meta_of(answer: ApiAnswer, secrets: Iterable[str]) -> JsonObject:
    """Return the `_meta` of a result: the answer's status and relevant headers."""
    shown = {}
    for name in _SHOWN_HEADERS:
        if name in answer.headers:
            shown[name] = mask(answer.headers[name], secrets)
    return {"status": answer.status, "headers": shown}


def _elsewhere(
    answer: ApiAnswer, target: str, shape: Shape, secrets: Iterable[str]
) -> CallToolResult:
    """Return a redirect that was not followed: a link for GET, an error for other methods.

    Args:
        target: The URL of the redirect; "" if it is not valid.
        shape: The form of the tool's results.
        secrets: Texts to mask in the result.
    """
    where = mask(target, secrets)
    meta = {META_KEY: {"status": answer.status, "headers": {}}}
    method = shape.operation.method
    if not target:
        text = f"{answer.phrase}: {method} {shape.operation.path} is redirected to an invalid URL"
        return CallToolResult(content=[TextContent(text=text)], is_error=True, meta=meta)
    if method in ("GET", "HEAD"):
        name = unquote(urlsplit(target).path.rpartition("/")[2]) or "answer"
        return CallToolResult(
            content=[
                TextContent(text=f"The answer is at {where}; it was not requested."),
                ResourceLink(uri=where, name=name[:120]),
            ],
            structured_content=shape.empty,
            meta=meta,
        )
    text = (
        f"{answer.phrase}: {method} {shape.operation.path} is redirected to {where}, which is not "
        "requested; if the API has moved there, the operator has to change baseUrl"
    )
    return CallToolResult(content=[TextContent(text=text)], is_error=True, meta=meta)
