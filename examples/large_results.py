"""A model gets the beginning of a large result and reads on; a program gets all of it."""

import asyncio

from interlock import Server
from interlock.calls import Caller
from interlock.toolbox import Toolbox

server = Server("log")


@server.tool
def entries(count: int) -> str:
    """Return entries of a log."""
    return "".join(f"{number} all is well\n" for number in range(count))


async def main() -> None:
    model = Caller(surface="agent")
    async with Toolbox({"log": server}) as toolbox:
        whole = await toolbox.call("log:entries", {"count": 9000})
        print(f"a program gets {len(whole.text):,} characters")

        excerpt = await toolbox.call("log:entries", {"count": 9000}, caller=model)
        about = excerpt.meta["interlock/result"]
        print(f"a model gets {about['shown']:,} of {about['bytes']:,} bytes")

        found = await toolbox.call(
            "interlock:read_result", {"id": about["id"], "find": "8999"}, caller=model
        )
        print(found.text)


asyncio.run(main())
