"""R-02: every call ends by itself. Progress moves the idle deadline, never the hard one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from interlock.client import Client
from interlock.errors import RequestTimeout

pytestmark = pytest.mark.usefixtures("nothing_is_left")

Evil = Callable[..., Client]


async def test_slow_answer_times_out_and_is_dropped_once_complete(evil: Evil):
    async with evil() as client:
        with pytest.raises(RequestTimeout):
            await client.call_tool("drip", {"every": 0.02}, timeout=0.5)
        with pytest.raises(RequestTimeout):  # the rest of the dripped line spoils this answer
            await client.call_tool("echo", {"text": "lost"}, timeout=0.2)

        assert (await client.call_tool("echo", {"text": "next"})).text == "next"
        assert client.dropped["garbage"] == 1
