"""Options of tools, resources and prompts that are wrong are refused at the line that has them."""

from __future__ import annotations

import re

import pytest

from interlock import Server
from interlock.errors import SignatureError
from interlock.types import ToolAnnotations
from tests.support.rows import each_row


def add(a: int) -> int:
    """Add one."""
    return a + 1


async def undecorated(server):
    yield server


class Desk:
    @staticmethod
    def none() -> list[str]:
        return []

    @classmethod
    def ask(cls) -> str:
        return ""


@each_row(
    ("options", "says"),
    [
        ({"timout": 1}, "unknown option 'timout'; use 'timeout'"),
        ({"zzz": 1}, "unknown option 'zzz'; known are annotations, "),
        ({"timeout": 0}, "timeout=0 is not a number of seconds above 0"),
        ({"timeout": -1}, "timeout=-1 is not"),
        ({"timeout": float("nan")}, "timeout=nan is not"),
        ({"timeout": "1"}, "timeout='1' is not"),
        ({"timeout": True}, "timeout=True is not"),
        ({"concurrency": 0}, "concurrency=0 is not a whole number above 0"),
        ({"concurrency": 1.5}, "concurrency=1.5 is not"),
        ({"name": "add two"}, "invalid tool name 'add two'"),
        ({"name": "größer"}, "invalid tool name"),
        ({"name": "x" * 129}, "it must have 1 to 128 letters"),
        ({"annotations": {"read_only": True}}, "unknown key 'read_only'; use 'readOnlyHint'"),
        ({"annotations": {"readOnlyHint": "yes"}}, "annotations: Expected `bool`, got `str`"),
        ({"annotations": True}, "annotations is a bool; pass a dict or ToolAnnotations"),
        ({"task": "require"}, "task='require' is not True, 'required' or 'later'"),
    ],
)
def test_a_wrong_option_of_a_tool_is_refused_with_file_and_line(options, says):
    with pytest.raises(SignatureError) as raised:
        Server("options").tool(**options)(add)

    line = add.__code__.co_firstlineno
    assert str(raised.value).startswith(f"{__file__}:{line}: ")
    assert says in str(raised.value)


@each_row(
    ("wrong", "says"),
    [
        (lambda server: server.tool("x"), "tool takes no positional name; write tool(name='x')"),
        (lambda server: server.prompt("x"), "write prompt(name='x')"),
        (lambda server: server.prompt(lambda: ""), "the function has no name; set one with prompt"),
        (lambda server: server.resource(add), 'a resource needs its URI; write resource("notes'),
        (lambda server: server.tool(5), "int is not a function"),
        (lambda server: server.tool(print), "parameter 'args' of print: * and ** parameters"),
        (lambda server: server.add_tool(5), "int is not a function"),
        (lambda server: server.tool(vars(Desk)["ask"]), "ask is not bound to its class yet"),
        (lambda server: server.resource("x://", mime="a")(print), "'mime'; use 'mime_type'"),
        (lambda server: server.prompt(tilte="a")(add), "unknown option 'tilte'; use 'title'"),
        (lambda server: server.resource("x://{path*}")(add), "{path*} is not supported; write {+p"),
        (lambda server: server.resource("x://{b}")(add), "variable 'b', which is not a parameter"),
        (
            lambda server: server.resource("x://{a}", annotations={"readOnlyHint": True})(add),
            "unknown key 'readOnlyHint'; known are audience, lastModified, priority",
        ),
        (lambda server: server.completion("x", "a")(5), "a completion is a function, not int"),
        (lambda server: server.completion("x", "a")(Desk.none), "completion none has 0 parameters"),
        (lambda server: server.mount(Server("other"), "x"), 'the prefix comes first: mount("crm"'),
        (lambda server: Server("x", lifespan=undecorated), "undecorated with contextlib.asyncc"),
        (lambda server: server.asgi(allowed_hosts=["a"]), "'allowed_hosts'; use 'hosts'"),
        (lambda server: Server("x", lifespan=5), "lifespan is a int; pass the function itself"),
    ],
)
def test_a_wrong_use_of_a_decorator_is_refused(wrong, says):
    with pytest.raises(SignatureError) as raised:
        wrong(Server("options"))

    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{__file__}:")


@each_row(
    ("name", "ours"),
    [
        ("http_app", "; use asgi()"),
        ("custom_route", 'run_http(health="/healthz")'),
        ("import_server", "; use mount(prefix, other)"),
        ("disable", "; use the option visible="),
        ("zzz", "no attribute 'zzz'"),
    ],
)
def test_an_attribute_of_servers_of_other_packages_is_an_error_with_ours(name, ours):
    with pytest.raises(AttributeError, match=re.escape(ours)):
        getattr(Server("options"), name)


@each_row(
    ("name", "options"),
    [
        ("add", {}),
        ("files/v1.0_read-all", {"name": "files/v1.0_read-all"}),
        ("add", {"timeout": 0.5, "concurrency": 1}),
        ("add", {"annotations": {"readOnlyHint": True, "title": "Add"}}),
    ],
)
def test_options_may_be_given_beside_the_function(name, options):
    server = Server("options")

    assert server.tool(add, **options) is add

    definition = server._catalogue._tools[name].definition
    assert definition.name == name
    if "annotations" in options:
        assert definition.annotations == ToolAnnotations(title="Add", read_only_hint=True)


def test_add_tool_takes_a_function():
    server = Server("options")

    server.add_tool(add)

    assert list(server._catalogue._tools) == ["add"]
