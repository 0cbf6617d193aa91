"""The models that users of a chat can choose."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from interlock.config.settings import Settings
from interlock.models import Model, choosing
from interlock.web.chat.errors import TurnError

OpenModel = Callable[[str], Awaitable[Model]]


class ModelChoice:
    """The offered models by name. Each model is opened when it is first used.

    Args:
        names: Names as for `--model`. The first model is the default.
        opens: Opens the model with this name; None uses `choose`.
        settings: The user's settings, which have the prices of models.
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
        """Return a choice that offers only this model, which is already open."""
        made = cls([model.name])
        made._open[model.name] = model
        return made

    @property
    def default(self) -> str:
        return self.names[0]

    def pick(self, name: str) -> str:
        """Return the name if the model is offered, else the name of the default model."""
        return name if name in self.names else self.default

    async def get(self, name: str) -> Model:
        """Return an offered model, opening it if needed.

        Raises:
            ModelUnavailable: The model cannot be used.
        """
        async with self._opening:
            found = self._open.get(name)
            if found is None:
                found = self._open[name] = await self._opens(name)
            return found

    def check(self, name: str) -> str:
        """Return the name of a model after checking that it is offered.

        Raises:
            TurnError: The model is not offered.
        """
        if name not in self.names:
            raise TurnError("bad_message", "this model is not offered")
        return name

    async def close(self) -> None:
        opened, self._open = self._open, {}
        await asyncio.gather(*(each.close() for each in opened.values()))
