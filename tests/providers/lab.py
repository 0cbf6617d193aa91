"""One fake provider, and the models that talk with it as if it was at the provider's own URL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from interlock.models import Model, choose, learned
from interlock.models.learned import Lesson
from interlock.models.providers import BY_NAME
from tests.providers.fake_provider import KEY, Fake, ProviderServer


class Lab:
    """One provider and the models that talk with it."""

    def __init__(self, fake: Fake, server: ProviderServer) -> None:
        self.fake = fake
        self.server = server
        self.models: list[Model] = []

    async def choose(self, name: str, options: Any) -> Model:
        if "Responses" in self.fake.name:
            await self._note(name, Lesson("responses"))
        elif name.startswith("openai:"):
            await self._note(name, Lesson("lists_tools"))
        self.models.append(await choose(name, options=options))
        return self.models[-1]

    async def _note(self, name: str, lesson: Lesson) -> None:
        learned.note(name, lesson)

    async def close(self) -> None:
        for model in self.models:
            await model.close()
            learned.forget(model.name)
        self.models = []
        self.server.reset()


@asynccontextmanager
async def lab_of(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    """Start a provider, and name its address and key as a user does."""
    server = ProviderServer(fake)
    await server.start()
    name = fake.model.partition(":")[0]
    with monkeypatch.context() as patch:
        row = BY_NAME[name]
        for variable in (row.url_variable, "AZURE_OPENAI_API_VERSION", *row.keys):
            patch.delenv(variable, raising=False)
        if row.url:
            patch.setitem(BY_NAME, name, replace(row, url=f"{server.root}{fake.path}"))
        else:  # Azure and Ollama, whose addresses are in the environment
            patch.setenv(row.url_variable, server.root)
        if not row.is_local:
            patch.setenv(row.keys[0], KEY)
        if "dated" in fake.name:
            patch.setenv("AZURE_OPENAI_API_VERSION", "2026-04-01")
        lab = Lab(fake, server)
        try:
            yield lab
        finally:
            await lab.close()
            await server.stop()
