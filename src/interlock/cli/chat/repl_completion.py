"""Completes commands, models, servers' prompts and resources, and files in a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document

from interlock.errors import InterlockError

if TYPE_CHECKING:
    from interlock.chat import Chat
    from interlock.config.settings import Settings
    from interlock.toolbox.upstream import Upstream
    from interlock.types import Prompt

_T = TypeVar("_T")
_PATIENCE = 2.0  # seconds that completion waits for servers' lists


class ReplCompleter(Completer):
    """Completes the line that the user types in a conversation."""

    def __init__(self, commands: Mapping[str, str], chat: Chat, settings: Settings) -> None:
        self._commands = commands
        self._chat = chat
        self._settings = settings
        self._files = PathCompleter(expanduser=True)

    def get_completions(self, *_: object) -> Iterable[Completion]:
        """Return nothing: completion must wait for servers, which only the async method can."""
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        line = document.text_before_cursor
        if not line.startswith("/") or "\n" in line:
            return
        command, blank, rest = line.partition(" ")
        word = rest.rpartition(" ")[2] if blank else command
        if command == "/attach" and blank:
            for each in self._files.get_completions(Document(word), complete_event):
                yield each
            return
        try:
            found = await asyncio.wait_for(self._words(command, blank, rest), _PATIENCE)
        except (InterlockError, TimeoutError):
            return
        for text, about in found.items():
            if text.startswith(word):
                yield Completion(text, -len(word), display_meta=about)

    async def _words(self, command: str, blank: str, rest: str) -> dict[str, str]:
        if not blank:
            prompts = {f"/{name}": each for name, each in (await self._prompts()).items()}
            return {**self._commands, **_described(prompts)}
        if command == "/model":
            return await self._models()
        if command == "/prompt" and " " not in rest:
            return _described(await self._prompts())
        if command == "/prompt":
            return await self._arguments(rest.split()[0], rest)
        if command == "/read" and " " not in rest:
            return await self._resources()
        return await self._arguments(command[1:], rest) if ":" in command else {}

    async def _models(self) -> dict[str, str]:
        from interlock.models.choosing import available

        names = {each.name: "" for each in await available() if not each.problem}
        return {**self._settings.aliases, **names}

    async def _prompts(self) -> dict[str, Prompt]:
        found = await self._listed(lambda each: each.list_prompts())
        return {f"{name}:{each.name}": each for name, each in found}

    async def _resources(self) -> dict[str, str]:
        found = await self._listed(lambda each: each.list_resources())
        return {f"{name}:{each.uri}": each.name for name, each in found}

    async def _listed(
        self, listed: Callable[[Upstream], Awaitable[Iterable[_T]]]
    ) -> list[tuple[str, _T]]:
        """Return the listed items of all servers that work, each with its server's name."""
        toolbox = self._chat.toolbox
        states = {} if toolbox is None else toolbox.status
        names = [name for name, status in states.items() if status.state == "ok"]
        if toolbox is None or not names:
            return []
        answers = await asyncio.gather(
            *(listed(toolbox.upstream(name)) for name in names), return_exceptions=True
        )
        return [
            (name, each)
            for name, answer in zip(names, answers, strict=True)
            if not isinstance(answer, BaseException)
            for each in answer
        ]

    async def _arguments(self, address: str, rest: str) -> dict[str, str]:
        prompt = (await self._prompts()).get(address)
        if prompt is None:
            return {}
        given = {each.partition("=")[0] for each in rest.split(" ")[:-1]}
        return {
            f"{each.name}=": each.description or ""
            for each in prompt.arguments or ()
            if each.name not in given
        }


def _described(prompts: Mapping[str, Prompt]) -> dict[str, str]:
    return {name: each.description or each.title or "" for name, each in prompts.items()}
