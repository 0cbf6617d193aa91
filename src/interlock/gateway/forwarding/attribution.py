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
_SHOWN = ("title", "description")  # texts of a form's field


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
        message = _plain(question.get("message", ""))
        question["message"] = f"{server} asks: {message}"
        form = question.get("requestedSchema")
        properties = form.get("properties") if isinstance(form, dict) else None
        for field in properties.values() if isinstance(properties, dict) else ():
            if isinstance(field, dict):
                field |= {name: _plain(field[name]) for name in _SHOWN if name in field}
    elif method == "sampling/createMessage":
        told = _plain(question.get("systemPrompt", ""))
        source = f"This request comes from the server {server}."
        question["systemPrompt"] = f"{source}\n\n{told}" if told else source
    meta = question.get("_meta")
    question["_meta"] = {**(meta if isinstance(meta, dict) else {}), SERVER_KEY: server}
    return msgspec.json.encode(question)


def _plain(text: Any) -> Any:
    return texts.visible(text) if isinstance(text, str) else text


def _check_url(server: str, question: JsonObject) -> None:
    if question.get("mode") != "url" and "url" not in question:
        return
    url = question.get("url")
    try:
        scheme = urlsplit(url).scheme if isinstance(url, str) else ""
    except ValueError:
        scheme = ""
    if scheme not in ("http", "https"):
        shown = f"a URL of the scheme {quoting.echo(scheme)}" if scheme else "no valid URL"
        raise AskRefused(
            f"{server} asks to open {shown}; only http and https are passed on", "cannot_ask"
        )
