"""What a server's configuration decides, and what it never shows."""

from typing import Any

from interlock.config import Config, HttpServer, OAuthClient, StdioServer, ToolFilter
from tests.support.rows import each_row


@each_row(
    ("tools", "admitted"),
    [
        (ToolFilter(), ["git_log", "git_push", "Git_x"]),
        (ToolFilter(allow=()), []),
        (ToolFilter(allow=("git_*",)), ["git_log", "git_push"]),
        (ToolFilter(allow=("git_*",), deny=("*_push",)), ["git_log"]),
        (ToolFilter(deny=("git_log",)), ["git_push", "Git_x"]),
    ],
)
def test_a_tool_is_offered_if_allowed_and_not_denied(
    tools: ToolFilter, admitted: list[str]
) -> None:
    assert [name for name in ("git_log", "git_push", "Git_x") if tools.admits(name)] == admitted


def test_only_tools_of_the_operators_list_are_always_listed() -> None:
    tools = ToolFilter(always_load=("find_*",))
    assert [tools.lists(each) for each in ("find_lead", "Find_lead", "drop")] == [
        True,
        False,
        False,
    ]


def test_only_idempotent_tools_may_be_repeated() -> None:
    tools = ToolFilter(idempotent=("get_*",))

    assert [tools.may_repeat(name) for name in ("get_x", "set_x")] == [True, False]
    assert not ToolFilter().may_repeat("get_x")


@each_row(
    ("auth", "headers", "expected"),
    [
        ("auto", {}, True),
        ("oauth", {"X-Key": "k"}, True),
        ("auto", {"authorization": "Bearer t"}, False),
        ("bearer", {"Authorization": "Bearer t"}, False),
        ("none", {}, False),
    ],
)
def test_a_login_is_used_unless_a_header_authorizes_requests(
    auth: Any, headers: dict[str, str], expected: bool
) -> None:
    assert HttpServer(url="https://h", auth=auth, headers=headers).uses_login is expected


def test_a_repr_contains_no_secret() -> None:
    secret = "canary-7f3a"
    stdio = StdioServer(command="x", args=(f"postgres://u:{secret}@h/d",), env={"KEY": secret})
    http = HttpServer(
        url=f"https://u:{secret}@h/mcp?key={secret}",
        headers={"A": secret},
        oauth=OAuthClient(client_id="me", client_secret=secret),
    )
    read = Config(None, {"a": stdio, "b": http})

    assert secret not in f"{http.oauth!r} {stdio} {http!r} {read} {read!r}"
    assert repr(stdio) == "StdioServer('x', 1 args, env ['KEY'])"
    assert repr(http) == "HttpServer('https://…@h/mcp', http, headers ['A'])"
