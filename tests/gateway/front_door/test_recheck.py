"""Issuers that are asked again about people whose tokens are used."""

from __future__ import annotations

import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from interlock.auth.stored_authorization import StoredPerson
from interlock.config.gateway import Issuer
from interlock.errors import AuthError
from interlock.gateway.front_door import recheck
from interlock.gateway.front_door.recheck import Rechecks

HANGS, FAILS, ANSWERS = "https://hangs.example", "https://fails.example", "https://id.example"


class Issuers:
    """Three issuers, and the people of each.

    Attributes:
        asked: How often each issuer was asked.
    """

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.people = [
            StoredPerson(user=f"{issuer}#{number}", is_asked=True)
            for issuer in (HANGS, FAILS, ANSWERS)
            for number in range(20)
        ]

    async def get(self, user: str, tenant: str) -> tuple[StoredPerson, str]:
        return StoredPerson(user=user, tenant=tenant, is_asked=True), "token"

    async def lease(self, *_: object) -> bool:
        return True

    async def forget(self, person: StoredPerson) -> bool:
        return True

    def rechecks(self, monkeypatch: pytest.MonkeyPatch) -> Rechecks:
        gateway: Any = SimpleNamespace(
            issuers=lambda: [
                Issuer(issuer=each, client_id="c") for each in (HANGS, FAILS, ANSWERS)
            ],
            own=SimpleNamespace(recheck=60.0),
        )
        store: Any = self

        async def end_person(*_: object) -> None: ...

        made = Rechecks(store, gateway, end_person)

        async def ask_again(issuer: str) -> None:
            self.asked[issuer] += 1
            if issuer == HANGS:
                await asyncio.Event().wait()
            if issuer == FAILS:
                raise AuthError("the issuer does not answer")

        def login(issuer: str) -> Any:
            return SimpleNamespace(ask_again=lambda *_: ask_again(issuer))

        monkeypatch.setattr(made, "_login", login)
        return made


async def test_issuer_that_hangs_or_fails_delays_no_other(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(recheck, "EVERY", 0)
    issuers = Issuers()
    ring: Any = SimpleNamespace(in_use=lambda: issuers.people)
    running = asyncio.create_task(issuers.rechecks(monkeypatch).run(ring))
    while issuers.asked[ANSWERS] < 60:  # noqa: ASYNC110 - three rounds
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert issuers.asked[HANGS] == recheck.AT_ONCE
    assert issuers.asked[FAILS] < issuers.asked[ANSWERS]
