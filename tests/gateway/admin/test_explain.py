"""Explanations over the API agree with the calls."""

from __future__ import annotations

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import offering

SETTINGS = {
    "policy": {
        "rules": [
            {
                "id": "small",
                "effect": "allow",
                "who": ["*"],
                "tools": ["crm:refund"],
                "arguments": {"amount": {"maximum": 50}},
            }
        ]
    }
}


@pytest.mark.slow("fills a database")
async def test_explanation_has_the_same_effect_as_the_call(running):
    async with running(SETTINGS, crm=offering("refund", "drop")) as gateway:
        operator, key = await Operator.of(gateway), await gateway.key("anna")
        id = gateway.assembly.services.keys.find(key.encode()).stored.id
        found = {}
        for amount in (10, 80):
            asked = {"key": id, "address": "crm:refund", "arguments": {"amount": amount}}
            explained = await operator.change("POST", "/explain", asked)
            reply = await gateway.call("crm__refund", key, amount=amount)
            is_refused = reply.json["result"].get("isError", False)
            assert (explained["effect"] == "deny") == is_refused
            found[amount] = explained
        listed = await operator.change("POST", "/explain", {"user": "anna"})

    assert found[10]["rule"] == "small"
    assert found[80]["reason"] == "no_rule"
    assert "steps" in found[80]
    effects = {each["tool"]: each["effect"] for each in listed["tools"]}
    assert effects == {"crm:refund": "allow", "crm:drop": "deny"}


@pytest.mark.slow("fills a database")
async def test_explanation_for_an_unknown_caller_is_refused(running):
    async with running(SETTINGS, crm=offering("refund")) as gateway:
        operator = await Operator.of(gateway)
        for body, refusal in (
            ({"address": "crm:refund"}, (400, "bad_request")),
            ({"user": "a", "key": "b"}, (400, "bad_request")),
            ({"user": "a", "arguments": [1]}, (400, "bad_request")),
            ({"key": "absent", "address": "crm:refund"}, (404, "not_found")),
        ):
            assert await operator.refused("POST", "/explain", body) == refusal, body
