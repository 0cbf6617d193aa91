"""Streams answers of a model on loopback, with our client or a vendor's package.

    python model_client.py interlock|openai|anthropic VENDOR URL ANSWERS

It prints the processor seconds of one token after the first answer.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from time import process_time


async def ours(vendor: str, url: str, answers: int) -> AsyncIterator[int]:
    from interlock.messages import UserMessage
    from interlock.models import TextDelta, choose

    model = await choose(f"{vendor}:m@{url}")
    for _ in range(answers):
        pieces = [each async for each in model.stream([UserMessage("Hi")])]
        yield sum(isinstance(each, TextDelta) for each in pieces)
    await model.close()


async def openai(_: str, url: str, answers: int) -> AsyncIterator[int]:
    import openai

    client = openai.AsyncOpenAI(api_key="k", base_url=url)
    messages = [{"role": "user", "content": "Hi"}]
    for _ in range(answers):
        stream = await client.chat.completions.create(model="m", messages=messages, stream=True)
        yield sum([1 async for each in stream if each.choices[0].delta.content])


async def anthropic(_: str, url: str, answers: int) -> AsyncIterator[int]:
    import anthropic

    client = anthropic.AsyncAnthropic(api_key="k", base_url=url)
    messages = [{"role": "user", "content": "Hi"}]
    for _ in range(answers):
        stream = await client.messages.create(
            model="m", messages=messages, max_tokens=9, stream=True
        )
        yield sum([1 async for each in stream if each.type == "content_block_delta"])


async def main(client: str, vendor: str, url: str, answers: str) -> None:
    clients = {"interlock": ours, "openai": openai, "anthropic": anthropic}
    started, tokens = 0.0, 0
    async for count in clients[client](vendor, url, int(answers)):
        tokens += count if started else 0
        started = started or process_time()
    print((process_time() - started) / max(tokens, 1))


asyncio.run(main(*sys.argv[1:]))
