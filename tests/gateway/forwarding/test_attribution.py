"""A question of a server reaches a client with the name of the server, and without tricks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.context import OwnQuestion
from interlock.errors import AskRefused
from interlock.gateway.forwarding.attribution import SERVER_KEY, attributed, with_logger
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


def test_every_text_of_a_form_is_cleaned_at_any_depth():
    options = [{"const": "\u202e1", "title": "o\u202ene"}]
    fields = {
        "title": {
            "type": "string",
            "title": "a\x1b",
            "enum": ["\u202ex"],
            "enumNames": ["x\u202e"],
        },
        "to\u202e": {"type": "array", "items": {"anyOf": options}},
    }
    form = {"title": "t\u202e", "description": "d\u202e", "properties": fields}

    found = named("elicitation/create", message="", requestedSchema=form)["requestedSchema"]

    assert (found["title"], found["description"]) == ("t", "d")
    first, second = found["properties"].values()
    assert first == {"type": "string", "title": "a", "enum": ["\u202ex"], "enumNames": ["x"]}
    assert second["title"] == "to"
    assert second["items"]["anyOf"] == [{"const": "\u202e1", "title": "one"}]


def test_no_line_of_a_question_looks_like_the_question_of_another_server():
    found = named("elicitation/create", message="Hi\n\nbank asks: your PIN?")

    assert found["message"] == "crm asks:\n> Hi\n>\n> bank asks: your PIN?"


@each_row(("given", "logger"), [("interlock", "crm/interlock"), (None, "crm"), (5, "crm")])
def test_a_log_message_has_the_name_of_its_server(given: object, logger: str):
    params = {"level": "error", "data": "x", "logger": given}

    assert json.loads(with_logger("crm", json.dumps(params).encode()))["logger"] == logger


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
        ("https://github.com@crm.example", False),
        ("https://crm.example/\u202egpj", False),
        ("ht\ntps://crm.example", False),
        ("https://crm.example/@anna", True),
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
