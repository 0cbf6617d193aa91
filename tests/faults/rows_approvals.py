"""Approvals that are used while they become void, as clients see them over HTTP."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from interlock.errors import DecisionRefused
from interlock.gateway.assembly import Assembly
from interlock.store.keys import KeyStore
from tests.faults.gateways import RefundGateway, config_of, effects, gateway_of
from tests.faults.ground import Ground
from tests.faults.matrix import GATEWAY, row

TIMES = 40


def configuration(ground: Ground, *, lifetime: float = 900.0, **more: Any) -> dict[str, Any]:
    rule = {
        "id": "refunds",
        "effect": "ask",
        "who": ["*"],
        "tools": ["crm:refund"],
        "approvers": ["user:berta"],
        "expires": lifetime,
    }
    gateway = {"database": str(ground.folder / "gateway.db"), "policy": {"rules": [rule]}, **more}
    server = {"type": "python", "object": "tests.faults.gateways:CRM"}
    return {"mcpServers": {"crm": server}, "gateway": gateway}


class AskingGateway(RefundGateway):
    """A gateway that asks about each call of its tool."""

    def __init__(self, assembly: Assembly, keys: KeyStore, ground: Ground) -> None:
        super().__init__(assembly)
        self.keys = keys
        self.ground = ground
        self.key_id = ""

    async def approve(self) -> str:
        """Make a call with a new key, and approve it; return the id of the approval."""
        stored, key = await self.keys.create("anna", scopes=["mcp:*"])
        self.key_id, self._headers = stored.id, {"x-api-key": key}
        await self.assembly.services.keys.refresh()
        await self.call()
        approvals = self.assembly.services.approvals
        (asked,) = await approvals.list(["pending"])
        await approvals.approve(asked.id, asked.hash, None)
        return asked.id

    # What makes an approval void

    async def revoke(self, _: str) -> None:
        await self.keys.revoke(self.key_id)

    async def reload(self, _: str) -> None:
        groups = {f"g{random.random()}": ["user:x"]}
        await self.assembly.reload(config_of(configuration(self.ground, groups=groups)))

    async def deny(self, id: str) -> None:
        approvals = self.assembly.services.approvals
        with suppress(DecisionRefused):  # it is used already
            await approvals.deny(id, (await approvals.get(id)).hash, None)

    async def expire(self, id: str) -> None:
        approvals = self.assembly.services.approvals
        found = await approvals.get(id)
        approvals.changes.now = lambda: found.expires  # the clock
        await approvals.changes.refresh()

    async def change_definition(self, _: str) -> None:
        self.assembly.services.approvals._pin_of = lambda _: "another definition"


@asynccontextmanager
async def asking(ground: Ground) -> AsyncIterator[AskingGateway]:
    async with (
        KeyStore.open(ground.folder / "gateway.db") as keys,
        gateway_of(
            configuration(ground), lambda assembly: AskingGateway(assembly, keys, ground)
        ) as gateway,
    ):
        yield gateway


@row(
    "Approval raced: with expiry, denial, policy reload, key revocation, changed definition",
    "at most one effect; none of a call that begins after the change was acknowledged",
    GATEWAY,
    within=2.0,
)
async def is_raced(ground: Ground) -> None:
    chance = random.Random(ground.folder.name)
    async with asking(ground) as gateway:
        approvals = gateway.assembly.services.approvals
        now, pin_of = approvals.changes.now, approvals._pin_of
        changes: list[Callable[[str], Awaitable[None]]] = [
            gateway.revoke,
            gateway.reload,
            gateway.deny,
            gateway.expire,
            gateway.change_definition,
        ]
        for number in range(TIMES):
            approvals.changes.now, approvals._pin_of = now, pin_of
            effects.clear()
            id = await gateway.approve()
            change = changes[number % len(changes)]
            calling = [asyncio.create_task(gateway.call()) for _ in range(2)]
            await asyncio.sleep(chance.random() * 0.01)
            with ground.promise(outcome="at most one effect, none afterwards"):
                await change(id)
                late = await gateway.call()
                made = [await each for each in calling]
            assert late.code == 401 or late.json["result"]["isError"]
            assert len(effects) == sum(each.text == "done" for each in made) <= 1
            for asked in await approvals.list(["pending", "approved"]):
                await approvals.deny(asked.id, asked.hash, None)


@row(
    "Clock jump ±1 h / suspend: approvals",
    "approvals that were asked for before have expired, whichever way it jumps; "
    "the call asks again, and runs once approved",
    GATEWAY,
    within=1.0,
)
async def has_its_clock_set(ground: Ground) -> None:
    async with asking(ground) as gateway:
        approvals = gateway.assembly.services.approvals
        now = approvals.changes.now
        for hours in (1, -1):
            approvals.changes.now = now
            effects.clear()
            id = await gateway.approve()
            approvals.changes.now = lambda: now() + hours * 3_600_000_000  # noqa: B023
            with ground.promise(outcome="expired, then asked about again"):
                held = await gateway.call()
                assert held.json["result"]["isError"]
                await approvals.changes.refresh()
                assert (await approvals.get(id)).state == "expired"
            assert effects == []
            (asked,) = await approvals.list(["pending"])
            await approvals.approve(asked.id, asked.hash, None)
            assert (await gateway.call()).text == "done"
            assert len(effects) == 1
