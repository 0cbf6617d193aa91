"""Approvals over the API: of the call that was shown, by those whom the rule names."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.conftest import RunningGateway, offering

SETTINGS = {
    "groups": {"leads": ["user:berta"]},
    "policy": {
        "rules": [
            {
                "id": "refunds",
                "effect": "ask",
                "who": ["*"],
                "tools": ["crm:refund"],
                "approvers": ["group:leads"],
            }
        ]
    },
}
DECIDES = ("admin:read", "admin:approve")


async def refund(gateway: RunningGateway, key: str, amount: int = 80) -> Any:
    reply = await gateway.call("crm__refund", key, amount=amount)
    return reply.json["result"].get("isError", False)


@pytest.mark.slow("fills a database")
async def test_call_runs_once_after_its_approval(running):
    async with running(SETTINGS, crm=offering("refund")) as gateway:
        anna = await gateway.key("anna")
        berta = Operator(gateway, await gateway.key("berta", *DECIDES))
        assert await refund(gateway, anna)
        (asked,) = await berta.get("/approvals", "state=pending")
        assert (asked["user"], asked["tool"], asked["arguments"]) == (
            "user:anna",
            "crm:refund",
            {"amount": 80},
        )
        place = f"/approvals/{asked['id']}"
        assert await berta.get(place) == asked

        wrong = await berta.refused("POST", f"{place}/approve", {"hash": "of another call"})
        assert wrong == (409, "approval_changed")
        decided = await berta.change(
            "POST", f"{place}/approve", {"hash": asked["hash"], "note": "as agreed"}
        )
        assert (decided["state"], decided["decidedBy"]) == ("approved", "user:berta")
        assert await refund(gateway, anna, amount=81)
        assert not await refund(gateway, anna)
        assert (await berta.get(place))["state"] == "used"
        late = await berta.refused("POST", f"{place}/deny", {"hash": asked["hash"]})
        assert late == (409, "approval_used")
        (record,) = await berta.records("decided")
        assert (record["user"], record["call"], record["note"]) == (
            "user:berta",
            asked["call"],
            "as agreed",
        )


@pytest.mark.slow("fills a database")
async def test_decision_needs_the_scope_and_a_place_among_the_approvers(running):
    async with running(SETTINGS, crm=offering("refund")) as gateway:
        anna = Operator(gateway, await gateway.key("anna", "mcp:*", *DECIDES))
        chris = Operator(gateway, await gateway.key("chris", *DECIDES))
        auditor = Operator(gateway, await gateway.key("berta", "admin:read"))
        own = await gateway.key("berta", "mcp:*", *DECIDES)
        await refund(gateway, anna.key)
        await refund(gateway, own)
        approvals = await auditor.get("/approvals")
        by_user = {each["user"]: each for each in approvals}
        body = {"hash": approvals[0]["hash"]}
        for who, of, refusal in (
            (anna, "user:anna", "not_permitted"),
            (chris, "user:anna", "not_permitted"),
            (Operator(gateway, own), "user:berta", "not_permitted"),  # her own call
            (auditor, "user:anna", "insufficient_scope"),
        ):
            for decision in ("approve", "deny"):
                path = f"/approvals/{by_user[of]['id']}/{decision}"
                assert await who.refused("POST", path, body) == (403, refusal)
        assert await chris.refused("GET", "/approvals/absent") == (404, "not_found")
        absent = await chris.refused("POST", "/approvals/absent/deny", body)
        assert absent == (404, "not_found")
        pages = [await auditor.get("/approvals", "limit=1")]
        pages.append(await auditor.get("/approvals", f"limit=1&after={pages[0][0]['id']}"))
        assert [*pages[0], *pages[1]] == approvals
        after = await auditor.refused("GET", "/approvals", query="after=absent")
        assert after == (400, "bad_request")
