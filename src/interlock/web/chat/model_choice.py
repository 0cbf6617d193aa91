"""The models among which users of a chat choose."""

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
        names: Names in the form of `--model`. The first is the default.
        opens: Returns a model by its name; `choose` if None.
        settings: The user's settings, for the prices of models.
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
        """Return a choice with only this model, which stays open."""
        made = cls([model.name])
        made._open[model.name] = model
        return made

    @property
    def default(self) -> str:
        return self.names[0]

    def pick(self, name: str) -> str:
        """Return the name, or the default if the model is not offered (any more)."""
        return name if name in self.names else self.default

    async def get(self, name: str) -> Model:
        """Return a model.

        Raises:
            ModelUnavailable: The model cannot be used.
        """
        async with self._opening:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = await self._opens(name)
            return found

    def check(self, name: str) -> str:
        """Return the name of an offered model.

        Raises:
            TurnError: The model is not offered.
        """
        if name not in self.names:
            raise TurnError("bad_message", "this model is not offered")
        return name

    async def close(self) -> None:
        opened, self._open = self._open, {}
        await asyncio.gather(*(each.close() for each in opened.values()))
