"""Tasks that run at once up to where they first wait, where Python (3.12) can do that.

Most requests are answered without waiting for anything, so each saves a turn of the event loop.
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial

# As `asyncio.Task(coroutine, loop=..., name=...)`. It may be done when it is returned.
if sys.version_info >= (3, 12):
    start = partial(asyncio.Task, eager_start=True)
else:
    start = asyncio.Task
