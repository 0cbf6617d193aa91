"""Answer with a GGUF file, or say why it cannot be used."""

import asyncio

from interlock.errors import ModelUnavailable
from interlock.messages import UserMessage
from interlock.models import choose, complete


async def main() -> None:
    """Ask the model one question."""
    try:
        model = await choose("local:~/models/qwen3-8b-q4_k_m.gguf", options={"context": 8192})
    except ModelUnavailable as error:
        print(error)
        return
    reply = await complete(model, [UserMessage("What is a closure?")])
    print(reply.message.content)
    await model.close()


asyncio.run(main())
