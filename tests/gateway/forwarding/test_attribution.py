"""A question of a server reaches a client with the name of the server, and without tricks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.context import OwnQuestion
from interlock.errors import AskRefused
from interlock.gateway.forwarding.attribution import SERVER_KEY, attributed
from tests.support.rows import each_row


def named(method: str, **params: Any) -> Any:
    return json.loads(attributed("crm", method, json.dumps(params).encode()))


def test_a_form_has_the_name_of_its_server_and_no_hidden_characters():
    field = {"type": "string", "title": "ke\u200by", "description": "d\u202e", "const": "\u202e"}
    form = {"type": "object", "properties": {"key": field, "odd": 5}}

    found = named(
        "elicitation/create",
        message="interlock: log in\u202e",
        requestedSchema=form,
        _meta={"a": 1},
    )

    assert found["message"] == "crm asks: interlock: log in"
    assert found["_meta"] == {"a": 1, SERVER_KEY: "crm"}
    shown = found["requestedSchema"]["properties"]["key"]
    assert (shown["title"], shown["description"]) == ("key", "d")
    assert shown["const"] == "\u202e"  # a value, which the server compares


def test_a_request_for_a_model_has_the_name_of_its_server():
    found = named("sampling/createMessage", messages=[], systemPrompt="Be brief.")

    assert found["systemPrompt"] == "This request comes from the server crm.\n\nBe brief."
    assert found["_meta"] == {SERVER_KEY: "crm"}
    assert named("roots/list") == {"_meta": {SERVER_KEY: "crm"}}


@each_row(
    ("url", "is_allowed"),
    [
        ("https://crm.example/login", True),
        ("http://127.0.0.1:8080/", True),
        ("HTTPS://crm.example", True),
        ("javascript:alert(1)", False),
        ("file:///etc/passwd", False),
        ("//crm.example", False),
        ("http://[", False),
        (5, False),
        (None, False),
    ],
)
def test_only_addresses_of_the_web_are_passed_on(url: object, is_allowed: bool):
    params = {"mode": "url", "message": "Log in", "url": url, "elicitationId": "e"}
    if is_allowed:
        assert named("elicitation/create", **params)["url"] == url
    else:
        with pytest.raises(AskRefused, match="only http and https are passed on"):
            named("elicitation/create", **params)


def test_a_question_of_interlock_itself_has_no_name_of_a_server():
    own = OwnQuestion(b'{"message":"Log in to crm"}')

    assert attributed("crm", "elicitation/create", own) is own
