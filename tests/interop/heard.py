"""The notifications of a server to our client, kept until a test waits for them."""

from __future__ import annotations

import asyncio

from interlock.types import LogMessage

LIMIT = 20.0  # seconds for something to come


class Heard:
    """Log messages, lists that have changed, and resources that were updated."""

    def __init__(self) -> None:
        self._told: list[LogMessage | str] = []
        self._more = asyncio.Event()

    def add(self, told: LogMessage | str) -> None:
        """Note something: for `on_log`, `on_list_changed` and `on_resource_updated`."""
        self._told.append(told)
        self._more.set()

    async def wait(self, part: str) -> str:
        """Wait for the first change of this list or resource, or log message with this text.

        Returns:
            The list or resource, or "LEVEL: TEXT" of the message.
        """
        async with asyncio.timeout(LIMIT):
            while True:
                for each in self._told:
                    if each == part:
                        return part
                    if isinstance(each, LogMessage) and part in str(each.data):
                        return f"{each.level}: {each.data}"
                self._more.clear()
                await self._more.wait()
