"""Questions of servers, on their way to a client that sees only the gateway.

Without the name of the server, a form of any server would look like one of the gateway itself.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from interlock.context import OwnQuestion
from interlock.errors import AskRefused
from interlock.openapi import texts
from interlock.text import quoting
from interlock.types import JsonObject

SERVER_KEY = "interlock/server"  # in `_meta` of a question: the name of the server that asks
_SHOWN = frozenset(("title", "description"))  # texts of a form


def attributed(server: str, method: str, params: bytes) -> bytes:
    """Return the params of a server's question with the server's name, in the text and in `_meta`.

    Hidden and direction-changing characters are removed from the texts that people see.

    Raises:
        AskRefused: The question has a URL that is neither http nor https.
    """
    if isinstance(params, OwnQuestion):
        return params
    question: JsonObject = msgspec.json.decode(params or b"{}")
    if method == "elicitation/create":
        _check_url(server, question)
        question["message"] = quoting.asked(server, str(_plain(question.get("message", ""))))
        _clean(question.get("requestedSchema"))
    elif method == "sampling/createMessage":
        told = _plain(question.get("systemPrompt", ""))
        source = f"This request comes from the server {server}."
        question["systemPrompt"] = f"{source}\n\n{told}" if told else source
    meta = question.get("_meta")
    question["_meta"] = {**(meta if isinstance(meta, dict) else {}), SERVER_KEY: server}
    return msgspec.json.encode(question)


def with_logger(server: str, params: bytes) -> bytes:
    """Return the params of a server's log message with the server's name before its logger's."""
    message = msgspec.json.decode(params, type=dict[str, Any])
    logger = message.get("logger")
    message["logger"] = f"{server}/{logger}" if isinstance(logger, str) and logger else server
    return msgspec.json.encode(message)


def _plain(text: Any) -> Any:
    return texts.visible(text) if isinstance(text, str) else text


def _clean(form: Any) -> None:
    """Clean the texts of a form that people see, at any depth; its values stay as they are."""
    if isinstance(form, list):
        for each in form:
            _clean(each)
    if not isinstance(form, dict):
        return
    for name, each in form.items():
        if name in _SHOWN and isinstance(each, str):
            form[name] = _plain(each)
        elif name == "enumNames" and isinstance(each, list):
            form[name] = [*map(_plain, each)]
        else:
            _clean(each)
            if isinstance(each, dict) and "type" in each and not _is_plain(name):
                each.setdefault("title", _plain(name))  # a field, which is shown by its name


def _check_url(server: str, question: JsonObject) -> None:
    if question.get("mode") != "url" and "url" not in question:
        return
    url = question.get("url")
    try:
        parts = urlsplit(url) if isinstance(url, str) and _is_plain(url) else urlsplit("")
        scheme, has_user = parts.scheme, "@" in parts.netloc
    except ValueError:
        scheme, has_user = "", False
    if scheme not in ("http", "https") or has_user:
        shown = f"a URL of the scheme {quoting.echo(scheme)}" if scheme else "no valid URL"
        shown = "a URL with a user name, which looks like another host" if has_user else shown
        raise AskRefused(
            f"{server} asks to open {shown}; only http and https are passed on", "cannot_ask"
        )


def _is_plain(url: str) -> bool:
    return " " not in url and quoting.visible(url) == url
