"""Tool errors made from answers with an error status: short, and with what a model can do next."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from interlock.oauth.challenges import token_challenge
from interlock.openapi.answers import ApiAnswer
from interlock.openapi.identity import mask
from interlock.openapi.operations import is_json
from interlock.openapi.results import META_KEY, Shape, find_response, meta_of, text_of
from interlock.text.surrogates import repair_json
from interlock.transports.http_errors import retry_after
from interlock.types import CallToolResult, TextContent

MAX_TEXT = 2_048  # bytes
_MAX_PROBLEMS = 20
_MAX_PAGE = 64 * 1024  # characters of a web page to search for its title
_TAG = re.compile(r"<[^<>]+>")
_REQUEST_IDS = ("x-request-id", "request-id", "x-correlation-id", "x-amzn-requestid", "cf-ray")
# Members of a JSON error that may contain the reason, the most detailed first.
_REASONS = ("detail", "error_description", "message", "reason", "title", "error", "description")
_FIELDS = ("field", "param", "parameter", "property", "path", "name", "pointer")


class Help(msgspec.Struct, frozen=True):
    """Facts for an error text that the API's answer does not contain.

    Attributes:
        missing: The credentials that the operation lacks, in words; "" if none is missing.
        used: The security schemes that the request used, in words.
        login: The command with which a user logs in; "" if no scheme has a login.
        scopes: The scopes that the operation requires.
        effect: Whether the call may have been carried out, in words.
    """

    missing: str
    used: str
    login: str
    scopes: tuple[str, ...]
    effect: str


def failure(answer: ApiAnswer, shape: Shape, secrets: Iterable[str], help: Help) -> CallToolResult:
    """Return the tool result for an answer with a status of 400 or more."""
    secrets = list(secrets)
    operation = shape.operation
    lines = [f"{answer.phrase}: {operation.method} {operation.path}"]
    response = find_response(operation, answer.status)
    if response is not None and response.description:
        description = " ".join(response.description.split())
        if description.lower() not in (answer.phrase.lower(), answer.phrase[4:].lower()):
            lines.append(description[:300])
    lines += _advice(answer, shape, help)
    lines += _reasons(answer, shape)
    for name in _REQUEST_IDS:
        if name in answer.headers:
            lines.append(f"request id: {answer.headers[name][:100]}")
            break
    text = "\n".join(_readable(mask(line, secrets)[:MAX_TEXT]) for line in lines)
    return CallToolResult(
        content=[TextContent(text=_cut(text))],
        is_error=True,
        meta={META_KEY: meta_of(answer, secrets)},
    )


def _advice(answer: ApiAnswer, shape: Shape, help: Help) -> list[str]:
    match answer.status:
        case 401:
            return [_on_401(help)]
        case 403:
            told = token_challenge(answer.headers.get("www-authenticate", ""))
            scopes = " ".join(told.scopes or help.scopes)
            return [f"The operation requires the scopes: {scopes}."] if scopes else []
        case 412 | 428:
            name = shape.arguments.get(("header", "If-Match"))
            return [f"Pass the ETag of the current version as {name}."] if name else []
        case 429 | 503:
            wait = retry_after(answer.headers.get("retry-after", ""))
            return [f"retry after {wait:g} s"] if wait is not None else ["retry later"]
        case status if status >= 500:
            return [help.effect]
    return []


def _on_401(help: Help) -> str:
    if help.missing:
        return f"The operator has configured no credential for {help.missing} in openapi.auth."
    if help.login:
        return f"The API refuses the login: {help.login}"
    if help.used:
        return f"The API refuses the credential for {help.used} in openapi.auth."
    return "The API requires a credential that the document does not describe: add it to headers."


# Bodies


def _reasons(answer: ApiAnswer, shape: Shape) -> list[str]:
    """Return the reasons in the body: a line per problem in a known format, else the whole text."""
    if not answer.body:
        return []
    text = text_of(answer)
    if is_json(answer.media_type) or text.lstrip()[:1] in ("{", "["):
        try:
            value = msgspec.json.decode(repair_json(answer.body.removeprefix(b"\xef\xbb\xbf")))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return [text.strip()]
        known = _unfolded(value, shape.arguments)
        return known or [msgspec.json.encode(value).decode()]
    if "html" in answer.media_type or text.lstrip()[:1] == "<":
        title = _title(text[:_MAX_PAGE])
        return [title] if title and title.lower() != answer.phrase.lower() else []
    return [text.strip()]


def _title(page: str) -> str:
    """Return the title or first heading of a web page; linear time, even for a hostile page."""
    lower = page.lower()
    for tag in ("title", "h1"):
        begin = lower.find(">", lower.find(f"<{tag}") + 1) + 1
        end = lower.find(f"</{tag}>", begin)
        if f"<{tag}" in lower and 0 < begin <= end:
            return " ".join(_TAG.sub(" ", page[begin:end]).split())
    return ""


def _unfolded(value: Any, arguments: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a line for each problem in a JSON error; [] if its format is not known."""
    if isinstance(value, str):
        return [value]
    if not isinstance(value, dict):
        return _problems(value, arguments)
    lines: list[str] = []
    inner = value.get("error")
    places = [inner, value] if isinstance(inner, dict) else [value]
    for place in places:
        reason = next((place[name] for name in _REASONS if isinstance(place.get(name), str)), "")
        if reason and reason not in lines:
            field = next((place[name] for name in _FIELDS if isinstance(place.get(name), str)), "")
            is_field = field and place is inner
            lines.append(f"{_argument(field, arguments)}: {reason}" if is_field else reason)
    for place in places:
        for name in ("detail", "errors", "invalid-params", "invalid_params", "details", "issues"):
            lines += [each for each in _problems(place.get(name), arguments) if each not in lines]
    return lines


def _problems(value: Any, arguments: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a line for each problem in a list, or in an object that is keyed by field."""
    if isinstance(value, dict):
        return [
            f"{_argument(name, arguments)}: {_words(each)}"
            for name, each in list(value.items())[:_MAX_PROBLEMS]
        ]
    if not isinstance(value, list):
        return []
    lines = []
    for each in value[:_MAX_PROBLEMS]:
        if isinstance(each, dict):
            lines.append(_problem(each, arguments))
        else:
            lines.append(_words(each))
    return [line for line in lines if line]


def _problem(problem: dict[str, Any], arguments: Mapping[tuple[str, str], str]) -> str:
    reason = next(
        (problem[name] for name in ("msg", *_REASONS) if isinstance(problem.get(name), str)),
        msgspec.json.encode(problem).decode(),
    )
    location = problem.get("loc")
    if isinstance(location, list) and location:  # FastAPI sends ["query", "limit"]
        return f"{_located(location, arguments)}: {reason}"
    source = problem.get("source")
    fields = source if isinstance(source, dict) else problem
    field = next((fields[name] for name in _FIELDS if isinstance(fields.get(name), str)), "")
    return f"{_argument(field, arguments)}: {reason}" if field else reason


def _located(location: list[Any], arguments: Mapping[tuple[str, str], str]) -> str:
    place, *steps = location
    if not steps:
        return str(place)
    name = arguments.get((str(place), str(steps[0])))
    if name is None and (place, "") in arguments:  # one argument sets the whole body
        name, steps = arguments[place, ""], ["", *steps]
    return ".".join(map(str, [name or steps[0], *steps[1:]]))


def _argument(field: str, arguments: Mapping[tuple[str, str], str]) -> str:
    """Return the name of the argument that sets an API field, or the field's own name."""
    steps = [step for step in re.split(r"[./]", field.lstrip("#/$.")) if step]
    if not steps:
        return field
    for place in ("body", "query", "path", "header"):
        if (place, steps[0]) in arguments:
            return ".".join([arguments[place, steps[0]], *steps[1:]])
    if steps[0] == "body" and len(steps) > 1 and ("body", steps[1]) in arguments:
        return ".".join([arguments["body", steps[1]], *steps[2:]])
    return field


def _words(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return "; ".join(value)
    return msgspec.json.encode(value).decode()


# Text


def _readable(line: str) -> str:
    """Remove control, bidirectional and invisible characters from a text."""
    return "".join(each for each in line if each.isprintable() or each in "\n\t")


def _cut(text: str) -> str:
    encoded = text.encode()
    if len(encoded) <= MAX_TEXT:
        return text
    return encoded[: MAX_TEXT - 8].decode("utf-8", "ignore") + " [cut]"
