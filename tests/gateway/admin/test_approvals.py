"""Approvals over the API: of the call that was shown, by those whom the rule names."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import DecisionRefused
from interlock.gateway.client_approvals import approvals_in
from interlock.layers import approvals as approvals_module
from interlock.store.database import changes
from interlock.text.timestamps import now_micros
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
        (listed,) = await berta.get("/approvals", "state=pending")
        assert "arguments" not in listed
        asked = await berta.get(f"/approvals/{listed['id']}")
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


@pytest.mark.slow("fills a database")
async def test_commands_the_api_and_calls_judge_expiry_by_one_wall_clock(
    running, monkeypatch: pytest.MonkeyPatch
):
    now = [now_micros()]
    monkeypatch.setattr(changes, "now_micros", lambda: now[0])
    async with running(SETTINGS, crm=offering("refund")) as gateway:
        anna = await gateway.key("anna")
        berta = Operator(gateway, await gateway.key("berta", *DECIDES))
        parts = gateway.assembly.parts
        for amount in (1, 2, 3):
            await refund(gateway, anna, amount)
        # An open approval ends at `expires`, and not a microsecond before.
        listed = await berta.get("/approvals")
        whole = [await berta.get(f"/approvals/{each['id']}") for each in listed]
        asked = {each["arguments"]["amount"]: each for each in whole}
        found = await gateway.assembly.services.approvals.list(["pending"])
        now[0] = min(each.expires for each in found) - 1
        async with approvals_in(parts.config, parts.settings.database, decides=True) as command:
            await command.approve(asked[1]["id"], asked[1]["hash"], None)
            body = {"hash": asked[2]["hash"]}
            await berta.change("POST", f"/approvals/{asked[2]['id']}/approve", body)
            assert not await refund(gateway, anna, 1)

            now[0] = max(each.expires for each in found)
            await gateway.assembly.services.approvals.changes.refresh()
            states = {each["id"]: each["state"] for each in await berta.get("/approvals")}
            shown = {each.id: command.state(each) for each in await command.list()}
            body = {"hash": asked[3]["hash"]}
            late = await berta.refused("POST", f"/approvals/{asked[3]['id']}/approve", body)
            with pytest.raises(DecisionRefused) as refused:
                await command.approve(asked[3]["id"], asked[3]["hash"], None)

        expected = {1: "used", 2: "expired", 3: "expired"}
        assert states == shown == {asked[each]["id"]: state for each, state in expected.items()}
        assert late == (409, "approval_expired")
        assert refused.value.reason == "approval_expired"
        assert await refund(gateway, anna, 2)  # though it was approved in time


@pytest.mark.slow("fills a database")
@pytest.mark.parametrize(
    ("name", "value", "limit"),
    [
        ("MAX_PENDING", 2, "limit 2 calls of one user"),
        ("MAX_PENDING_BYTES", 2 * 2**20, "limit 2 MiB of arguments of one user"),
        ("MAX_PENDING_BYTES_OF_ALL", 2 * 2**20, "limit 2 MiB of arguments of all users"),
    ],
)
async def test_calls_that_wait_for_a_decision_are_limited_in_number_and_bytes(
    name: str, value: int, limit: str, running, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(approvals_module, name, value)
    async with running(SETTINGS, crm=offering("refund")) as gateway:
        anna = await gateway.key("anna")
        texts = []
        for number in range(3):
            reply = await gateway.call("crm__refund", anna, amount=80, note=f"{number}" * 900_000)
            texts.append(reply.json["result"]["content"][0]["text"])

        assert [limit in text for text in texts] == [False, False, True], texts
        berta = Operator(gateway, await gateway.key("berta", *DECIDES))
        assert len(await berta.get("/approvals", "state=pending")) == 2
