"""How many functions a call to a server in the same process passes through in a toolbox."""

from __future__ import annotations

from interlock import Server, Toolbox
from tests.support.path_of_a_call import passed
from tests.support.rows import each_row

server = Server("sums")


@server.tool
async def text(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool
async def typed(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
def plain(a: int, b: int) -> int:
    """Add two numbers in a thread."""
    return a + b


@each_row(("tool", "limit"), [("text", 42), ("typed", 46), ("plain", 48)])
async def test_a_call_to_a_python_server_passes_through_few_functions(tool: str, limit: int):
    async with Toolbox({"sums": server}) as toolbox:
        functions = await passed(lambda: toolbox.call(f"sums:{tool}", {"a": 1, "b": 2}), "3")

    assert len(functions) <= limit, functions
