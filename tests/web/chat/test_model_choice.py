"""The models of a chat: only those that are offered, each opened once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock.web.chat import model_choice as model_choice_module
from interlock.web.chat.errors import TurnError
from interlock.web.chat.model_choice import ModelChoice


class Opened:
    def __init__(self, name: str) -> None:
        self.name = name
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Opened]:
    found: list[Opened] = []

    async def choose(name: str) -> Any:
        await asyncio.sleep(0)
        found.append(Opened(name))
        return found[-1]

    monkeypatch.setattr(model_choice_module.choosing, "choose", choose)
    return found


async def test_a_model_is_opened_when_it_is_first_used_and_only_once(opened: list[Opened]) -> None:
    choice = ModelChoice(["a", "b"])
    assert opened == []

    found = await asyncio.gather(choice.get("b"), choice.get("b"))

    assert found[0] is found[1]
    assert [each.name for each in opened] == ["b"]
    await choice.close()
    assert opened[0].is_closed


def test_a_model_that_is_not_offered_is_refused_or_replaced_by_the_default() -> None:
    choice = ModelChoice(["a", "b"])

    assert (choice.pick("b"), choice.pick("gone"), choice.default) == ("b", "a", "a")
    assert choice.check("b") == "b"
    with pytest.raises(TurnError, match="this model is not offered"):
        choice.check("gone")
