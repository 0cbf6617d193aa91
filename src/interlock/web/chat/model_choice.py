"""The models of a chat. Users choose among them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from interlock.config.settings import Settings
from interlock.models import Model, choosing
from interlock.web.chat.errors import TurnError

OpenModel = Callable[[str], Awaitable[Model]]


class ModelChoice:
    """Models by name, each opened when it is first used.

    Args:
        names: As for `--model`. The first is the default.
        opens: Returns a model by its name; `choose` if None.
        settings: The user's, for what the models cost.
    """

    def __init__(
        self,
        names: Sequence[str],
        opens: OpenModel | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.names = tuple(names)
        self.settings = settings or Settings()
        self._opens = opens or choosing.choose
        self._open: dict[str, Model] = {}
        self._opening = asyncio.Lock()

    @classmethod
    def of(cls, model: Model) -> ModelChoice:
        """Return the choice of one model, which stays open."""
        made = cls([model.name])
        made._open[model.name] = model
        return made

    @property
    def default(self) -> str:
        """The name of the default model."""
        return self.names[0]

    def pick(self, name: str) -> str:
        """Return a name, or the default if it is not offered (any more)."""
        return name if name in self.names else self.default

    async def get(self, name: str) -> Model:
        """Return a model.

        Raises:
            ModelUnavailable: It cannot be used.
        """
        async with self._opening:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = await self._opens(name)
            return found

    def check(self, name: str) -> str:
        """Return a name that a user chose.

        Raises:
            TurnError: It is not one of the models.
        """
        if name not in self.names:
            raise TurnError("bad_message", "this model is not offered")
        return name

    async def close(self) -> None:
        """Close the models."""
        opened, self._open = self._open, {}
        await asyncio.gather(*(each.close() for each in opened.values()))
