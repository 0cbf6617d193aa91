"""Dependencies: what they receive, when they run and close, and which definitions are refused."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from typing import Annotated, Any

import fastapi
import fastmcp.dependencies
import pytest
from mcp.server.mcpserver import Resolve
from pydantic import Field
from typing_extensions import TypeAliasType

from interlock import Client, Context, Depends, Server, ToolError
from interlock.errors import SignatureError
from interlock.types import ElicitParams, ElicitResult
from tests.support.rows import each_row

BOTH = pytest.mark.parametrize("revision", ["2026-07-28", "2025-11-25"])
events: list[str] = []


@pytest.fixture(autouse=True)
def no_events() -> None:
    events.clear()


class Database:
    async def find(self, email: str) -> str:
        return f"customer {email}"


@asynccontextmanager
async def opened(_server: Server) -> AsyncIterator[Database]:
    yield Database()


async def customer(email: str, context: Context[Database]) -> str:
    events.append("customer")
    return await context.lifespan.find(email)


Customer = Annotated[str, Depends(customer)]


def plain() -> str:
    return "plain"


class Callable_:
    async def __call__(self) -> str:
        return "object"


class Settings:
    def __init__(self, email: str) -> None:
        self.email = email

    def __repr__(self) -> str:
        return f"settings of {self.email}"


def generator() -> Iterator[str]:
    events.append("open")
    yield "generator"
    events.append("close")


async def async_generator() -> AsyncIterator[str]:
    events.append("open")
    yield "async generator"
    events.append("close")


@contextmanager
def manager() -> Iterator[str]:
    events.append("open")
    yield "manager"
    events.append("close")


def annotated_manager() -> AbstractContextManager[str]:
    return manager()


KINDS = [
    (customer, "customer a@b.c", ["customer"]),
    (plain, "plain", []),
    (Callable_(), "object", []),
    (Settings, "settings of a@b.c", []),
    (functools.partial(customer, email="x"), "customer x", ["customer"]),
    (generator, "generator", ["open", "close"]),
    (async_generator, "async generator", ["open", "close"]),
    (manager, "manager", ["open", "close"]),
    (asynccontextmanager(async_generator), "async generator", ["open", "close"]),
    (annotated_manager, "manager", ["open", "close"]),
]


def server_of(provide: Callable[..., Any]) -> Server:
    """Return a server with a dependency in each kind of function, marked in both ways."""
    server = Server("s", lifespan=opened)
    Filled = Annotated[Any, Depends(provide)]

    async def in_loop(email: str, value: Any, again: Any) -> str:
        return f"{value}" if value is again else "two values"

    def in_thread(email: str, value: Any = Depends(provide)) -> str:
        return f"{value}"

    in_loop.__annotations__ |= {"value": Filled, "again": Filled}
    server.tool(in_loop)
    server.tool(in_thread)
    server.resource("x://{email}")(in_thread)
    server.prompt(in_loop)
    return server


@each_row(("provide", "value", "happened"), KINDS)
async def test_a_dependency_runs_once_in_every_kind_of_function(provide, value, happened):
    async with Client.memory(server_of(provide)) as client:
        given = {"email": "a@b.c"}
        for ask in (
            lambda: client.call_tool("in_loop", given),
            lambda: client.call_tool("in_thread", given),
            lambda: client.read_resource("x://a@b.c"),
            lambda: client.get_prompt("in_loop", given),
        ):
            answer = await ask()
            text = getattr(answer, "text", "") or answer.messages[0].content.text
            assert text == value
            assert events == happened
            events.clear()


async def test_a_client_can_neither_see_nor_set_a_dependency():
    async with Client.memory(server_of(customer)) as client:
        tools = await client.list_tools()
        prompt = (await client.list_prompts())[0]
        result = await client.call_tool("in_loop", {"email": "a", "value": "forged"})

    assert [list(each.input_schema["properties"]) for each in tools] == [["email"], ["email"]]
    assert [each.name for each in prompt.arguments or []] == ["email"]
    assert result.is_error
    assert result.text == "unknown argument 'value'"
    assert events == []


async def test_a_dependency_takes_an_argument_by_the_name_of_its_parameter():
    def double(n: int) -> int:
        return 2 * n

    def show(n: Annotated[int, Field(alias="N")], doubled: int = Depends(double)) -> str:
        return f"{n} {doubled}"

    server = Server("s")
    server.tool(show)
    server.resource("x://{N}")(show)
    server.prompt(show)
    async with Client.memory(server) as client:
        texts = [
            (await client.call_tool("show", {"N": 2})).text,
            (await client.read_resource("x://2")).text,
            (await client.get_prompt("show", {"N": "2"})).messages[0].content.text,
        ]

    assert texts == ["2 4"] * 3


async def test_a_dependency_of_a_tool_with_its_own_schema_cannot_be_set():
    server = Server("s")

    def name(email: str = "nobody") -> str:
        return email

    schema = {"type": "object", "properties": {"email": {"type": "string"}}}

    @server.tool(input_schema=schema)
    async def greet(value: str = Depends(name), **more: Unknown) -> str:  # noqa: F821
        return f"{value} {more}"

    async with Client.memory(server) as client:
        assert (await client.call_tool("greet", {})).text == "nobody {}"
        forged = await client.call_tool("greet", {"value": "forged", "other": 1})
        assert forged.text == "nobody {'other': 1}"


@pytest.mark.parametrize("is_async", [True, False])
@each_row("error", [None, ToolError("no"), RuntimeError("bug")])
async def test_dependencies_close_in_reverse_order_before_the_answer(is_async, error):
    server = Server("s")
    events.clear()

    def first() -> Iterator[str]:
        try:
            yield "1"
        finally:
            events.append("first closed")

    def second(first: str = Depends(first)) -> Iterator[str]:
        try:
            yield first + "2"
        except (ToolError, RuntimeError):
            events.append("second rolled back")
            raise
        finally:
            events.append("second closed")

    def use(both: str = Depends(second)) -> str:
        events.append(both)
        if error is not None:
            raise error
        return both

    async def use_async(both: str = Depends(second)) -> str:
        return use(both)

    server.tool(name="use")(use_async if is_async else use)
    async with Client.memory(server) as client:
        result = await client.call_tool("use", {})

    assert result.is_error == (error is not None)
    rolled_back = ["second rolled back"] if error is not None else []
    assert events == ["12", *rolled_back, "second closed", "first closed"]


async def test_a_dependency_that_swallows_the_error_fails_the_call(caplog):
    server = Server("s")

    async def swallowing() -> AsyncIterator[int]:
        try:
            yield 1
        except ToolError:
            events.append("swallowed")

    @server.tool
    async def fail(one: int = Depends(swallowing)) -> str:
        raise ToolError("the model must see this")

    async with Client.memory(server) as client:
        result = await client.call_tool("fail", {})

    assert result.is_error
    assert "a dependency of" in caplog.text
    assert "did not raise it again" in caplog.text


async def test_plain_dependencies_of_a_plain_tool_share_its_thread():
    server = Server("s")
    threads: list[int] = []

    def note() -> Iterator[int]:
        threads.append(threading.get_ident())
        yield 1
        threads.append(threading.get_ident())

    @server.tool
    def use(one: int = Depends(note)) -> str:
        threads.append(threading.get_ident())
        return "used"

    @server.tool
    async def use_async(one: int = Depends(note)) -> str:
        return "used"

    async with Client.memory(server) as client:
        await client.call_tool("use", {})
        assert len(threads) == 3
        assert len(set(threads)) == 1
        assert threading.get_ident() not in threads
        await client.call_tool("use_async", {})

    assert threading.get_ident() not in threads  # a plain function never blocks the event loop


async def test_a_context_manager_that_a_cancelled_call_was_entering_is_closed():
    server = Server("s")
    entering, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def slow() -> Iterator[int]:
        entering.set()
        go_on.wait()
        yield 1
        closed.set()

    @server.tool(timeout=0.01)
    async def use(one: int = Depends(slow)) -> str:
        return "used"

    async with Client.memory(server) as client:
        result = await client.call_tool("use", {})
        assert result.is_error
        go_on.set()
        await asyncio.to_thread(closed.wait)


# Questions


@BOTH
async def test_a_dependency_that_asks_is_asked_once(revision):
    server = Server("s")
    asked: list[str] = []

    async def confirmed(context: Context) -> bool:
        answer = await context.elicit("Delete it?", bool)
        if answer.action != "accept" or not answer.data:
            raise ToolError("the user wants to keep it")
        return answer.data

    @server.tool
    async def delete(context: Context, ok: bool = Depends(confirmed)) -> str:
        name = await context.elicit("Your name?", str)
        return f"{ok} {name.data if name.action == 'accept' else name.action}"

    async def answer(question: ElicitParams) -> ElicitResult:
        asked.append(question.message)
        value = "Ada" if "name" in question.message else len(asked) < 3
        return ElicitResult(action="accept", content={"value": value})

    async with Client.memory(server, elicitation=answer, revision=revision) as client:
        assert (await client.call_tool("delete", {})).text == "True Ada"
        assert asked == ["Delete it?", "Your name?"]
        assert (await client.call_tool("delete", {})).text == "the user wants to keep it"


# Tests of users


async def test_override_replaces_a_dependency_until_its_block_ends():
    server = server_of(customer)

    def upper(email: str) -> str:
        return email.upper()

    async with Client.memory(server) as client:
        given = {"email": "a@b.c"}
        with server.override({customer: lambda: "fake"}):
            with server.override({customer: upper}):
                assert (await client.call_tool("in_loop", given)).text == "A@B.C"
            assert (await client.call_tool("in_thread", given)).text == "fake"
            assert (await client.read_resource("x://a@b.c")).text == "fake"
        assert (await client.call_tool("in_thread", given)).text == "customer a@b.c"


async def test_an_async_function_may_override_a_plain_one():
    server = server_of(plain)

    async def slow(email: str) -> str:
        return f"slow {email}"

    async with Client.memory(server) as client:
        with server.override({plain: slow}):
            assert (await client.call_tool("in_thread", {"email": "a"})).text == "slow a"


@each_row(
    ("others", "says"),
    [
        ({plain: lambda: 1}, "plain is not a dependency of this server"),
        ({customer: "text"}, "str cannot be called"),
        ({customer: lambda size: size}, "'size' of dependency"),
    ],
)
def test_an_override_that_cannot_work_is_refused(others, says):
    server = server_of(customer)
    with pytest.raises(SignatureError, match=says), server.override(others):
        pass

    with server.override({customer: plain}):  # the refused one has left nothing behind
        pass


# Definitions that are refused


def takes(hint: Any, default: Any = ...) -> Callable[..., str]:
    def tool(a: int, value: Any = default) -> str:
        return ""

    tool.__annotations__["value"] = hint
    if default is ...:
        tool.__defaults__ = None
    return tool


def needs_size(size: int = 3) -> int:
    return size


def positional(a: int, /) -> int:
    return a


def loop_a(b: Annotated[int, "replaced below"]) -> int:
    return b


def loop_b(a: Annotated[int, Depends(loop_a)]) -> int:
    return a


def unresolved(a: Unknown) -> int:  # type: ignore[name-defined]  # noqa: F821
    return a


loop_a.__annotations__["b"] = Annotated[int, Depends(loop_b)]


@each_row(
    ("tool", "says"),
    [
        (
            takes(Annotated[int, Depends(needs_size)]),
            r"'size' of dependency needs_size \(.*test_dependencies.py:\d+\) is neither",
        ),
        (takes(int, Depends(needs_size)), r"nor an argument \(a\); add the argument"),
        (takes(int, Depends(unresolved)), "'a' of unresolved cannot be resolved"),
        (takes(int, Depends(positional)), "'a' of dependency positional .* is positional only"),
        (takes(int, Depends(loop_b)), "need each other: loop_b -> loop_a -> loop_b"),
        (takes(Annotated[int, Depends(plain)] | None), "inside its type"),
        (takes(list[Annotated[int, Depends(plain)]]), "inside its type"),
        (takes(TypeAliasType("Maybe", Annotated[int, Depends(plain)] | None)), "inside its type"),
        (takes(Annotated[int, Depends(plain)], Depends(needs_size)), "2 dependencies"),
        (takes(Annotated[int, fastapi.Depends(plain)]), "Depends of fastapi; import Depends"),
        (takes(int, fastapi.Depends(plain)), "Depends of fastapi; import Depends"),
        (takes(int, fastmcp.dependencies.Depends(plain)), "of uncalled_for; import Depends"),
        (takes(Annotated[int, Resolve(plain)]), "Resolve of mcp; import Depends"),
        (takes(Context[int]), r"Context\[int\], but the server's lifespan yields .*Database"),
        (
            takes(int, Depends(lambda context: 1)),
            "'context' of dependency .* is neither a dependency, nor the Context",
        ),
    ],
)
def test_a_definition_that_cannot_work_is_refused(tool, says):
    server = Server("s", lifespan=opened)
    for register in (server.tool, server.resource("x://{a}"), server.prompt):
        with pytest.raises(SignatureError, match=says) as raised:
            register(tool)
        assert str(raised.value).startswith(f"{__file__}:{tool.__code__.co_firstlineno}: ")


@each_row(("given", "kind"), [(3, "int"), (None, "NoneType"), (generator(), "generator")])
def test_depends_takes_only_functions(given, kind):
    with pytest.raises(SignatureError, match=rf"^{__file__}:.*not {kind}; write Depends\(f\)"):
        Depends(given)


# The lifespan in hints


def untyped(_server): ...


@asynccontextmanager
async def yields_dict(_server: Server) -> AsyncIterator[dict[str, int]]:
    yield {"a": 1}


@each_row(
    ("lifespan", "hint", "fits"),
    [
        (opened, Context[Database], True),
        (opened, Context[object], True),
        (opened, Context[Any] | None, True),
        (opened, Context, True),
        (opened, Context[str], False),
        (yields_dict, Context[dict[str, int]], True),
        (yields_dict, Context[dict], True),
        (yields_dict, Context[Database], False),
        (untyped, Context[Database], True),
        (None, Context[None], True),
        (None, Context[Database], False),
    ],
)
def test_the_context_must_have_the_type_that_the_lifespan_yields(lifespan, hint, fits):
    server = Server("s", lifespan=lifespan)
    if fits:
        server.tool(takes(hint))
        return
    with pytest.raises(SignatureError, match=r"'value' of .*tool is Context"):
        server.tool(takes(hint))
