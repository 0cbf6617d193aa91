"""Values of callers in the headers and variables of servers: never missing, never mixed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import Server, Toolbox
from interlock.auth import Principal
from interlock.calls import Caller
from interlock.config import HttpServer, Pool
from interlock.config.servers import Sharing
from interlock.errors import CallRefused, ConfigError
from interlock.text.redaction import HiddenValues
from interlock.toolbox.caller_values import MAX_VALUE, values_of
from tests.support.echoed_headers import echoing
from tests.support.rows import each_row

HEADERS = {
    "X-User": "${caller.user}",
    "X-Tenant": "${caller.claim:tenant}",
    "X-Trace": "v${header:X-Trace}",
}


class NoCredentials:
    """The credentials of a gateway whose servers need none."""

    is_local = False

    async def owners(self, server: str) -> list[str]:
        return []

    def connect_url(self, owner: str, server: str) -> str:
        return ""

    def login(self, owner: str, server: str, config: object) -> None:
        raise AssertionError("the server needs no login")


class Person(Caller, frozen=True):
    """A caller, with the values that the server must get."""

    @property
    def expected(self) -> str:
        assert self.principal is not None
        claims = self.principal.claims
        return f"{self.principal.id}|{claims['tenant']}|v{self.headers['x-trace']}"


def person(user: str, tenant: Any, trace: str, session: str = "") -> Person:
    principal = Principal(f"user:{user}", claims={"tenant": tenant})
    return Person(principal, session, headers=HiddenValues({"x-trace": trace}))


people = st.builds(
    person,
    st.sampled_from(["anna", "bert"]),
    st.sampled_from(["red", "blue", 7]),
    st.sampled_from(["1", "2"]),
    st.sampled_from(["", "one", "two"]),
)


@pytest.mark.slow("tries many orders of calls")
@each_row("sharing", ["per_user", "per_session", "per_call"])
def test_values_of_callers_are_never_mixed(sharing: Sharing):
    """Calls at the same time, over a pool that is too small to keep all connections."""

    async def made(url: str, rounds: list[list[Person]]) -> list[tuple[str, str]]:
        server = HttpServer(
            url=url, auth="none", sharing=sharing, headers=HEADERS, pool=Pool(max=3)
        )
        credentials: Any = NoCredentials()
        async with Toolbox({"s": server}, credentials=credentials) as toolbox:
            await toolbox.upstream("s").start_for_caller(person("carl", "green", "0"))

            async def call(caller: Person) -> tuple[str, str]:
                return (await toolbox.call("s:who", caller=caller)).text, caller.expected

            found: list[tuple[str, str]] = []
            for callers in rounds:
                found += await asyncio.gather(*map(call, callers))
            return found

    with asyncio.Runner() as runner:
        upstream = echoing()
        url = runner.run(upstream.__aenter__())

        @settings(max_examples=25, deadline=None)
        @given(st.lists(st.lists(people, min_size=1, max_size=6), min_size=1, max_size=4))
        def check(rounds: list[list[Person]]) -> None:
            for got, expected in runner.run(made(url, rounds)):
                assert got == expected

        try:
            check()
        finally:
            runner.run(upstream.__aexit__(None, None, None))


# One value


@each_row(
    ("claim", "problem"),
    [
        ("red", ""),
        (7, ""),
        (True, ""),
        (None, "is missing"),
        ("", "is missing"),
        (["red"], "is neither a text nor a whole number"),
        (1.5, "is neither a text nor a whole number"),
        ("red\r\nX-Admin: yes", "has a control character"),
        ("red\nblue", "has a control character"),
        ("red\0", "has a control character"),
        ("red\u2028blue", "has a control character"),
        (" red", "begins or ends with a blank"),
        ("red ", "begins or ends with a blank"),
        ("x" * (MAX_VALUE + 1), "is too long (limit 4,096 characters)"),
    ],
)
@each_row("in_headers", [True, False])
def test_value_that_cannot_be_sent_is_refused_without_being_shown(in_headers, claim, problem):
    def values() -> tuple[str, ...]:
        caller = person("anna", claim, "1")
        return values_of("crm", ["${caller.claim:tenant}"], caller, in_headers=in_headers)

    if not problem:
        assert values() == (str(claim).lower(),)
        return
    with pytest.raises(CallRefused) as raised:
        values()
    text = f"server 'crm' needs values of the caller: the claim 'tenant' {problem}"
    assert (str(raised.value), raised.value.reason) == (text, "caller_value_missing")


def test_other_alphabets_are_for_variables_and_not_for_headers():
    caller = person("anna", "größe", "1")
    assert values_of("crm", ["${caller.claim:tenant}"], caller, in_headers=False) == ("größe",)
    with pytest.raises(CallRefused, match="not ASCII"):
        values_of("crm", ["${caller.claim:tenant}"], caller, in_headers=True)


def test_one_refusal_names_all_values_that_are_missing():
    nobody = Caller(Principal("user:anna"))
    references = ["${caller.claim:tenant}", "${caller.user}", "${header:X-Trace}"]
    with pytest.raises(CallRefused) as raised:
        values_of("crm", references, nobody, in_headers=True)

    assert str(raised.value).endswith(
        "the claim 'tenant' is missing, the header X-Trace is missing"
    )
    assert "s3cret" not in repr(person("anna", "red", "s3cret"))


# Headers of one call


async def test_headers_of_a_call_are_sent_with_that_call_only():
    """Many calls at the same time over the same connection, in both eras and over HTTP+SSE."""
    async with echoing() as url:
        oldest = url.removesuffix("/mcp") + "/sse"
        servers = {
            "s": HttpServer(url=url, headers={"x-tenant": "configured"}),
            "old": HttpServer(url=oldest, type="sse", headers={"x-tenant": "configured"}),
        }
        async with Toolbox(servers) as toolbox:

            async def call(server: str, number: int) -> str:
                headers = {"X-Tenant": f"t{number}", "X-Trace": f"v{number}"} if number % 3 else {}
                return (await toolbox.call(f"{server}:who", headers=headers)).text

            for server in servers:
                found = await asyncio.gather(*(call(server, number) for number in range(30)))
                assert found == [
                    f"|t{number}|v{number}" if number % 3 else "|configured|"
                    for number in range(30)
                ]


@each_row(
    ("headers", "problem"),
    [
        ({"X-Tenant": "s3cret\r\nX-Admin: yes"}, "the value of header X-Tenant has an invalid"),
        ({"Mcp-Session-Id": "s3cret"}, "header Mcp-Session-Id is set by the client"),
        ({"X Tenant": "s3cret"}, "is not a valid name of an HTTP header"),
    ],
)
async def test_invalid_header_of_a_call_is_refused_before_it_is_sent(headers, problem):
    async with echoing() as url, Toolbox({"s": HttpServer(url=url)}) as toolbox:
        with pytest.raises(ConfigError, match=problem) as raised:
            await toolbox.call("s:who", headers=headers)
        assert "s3cret" not in str(raised.value)


async def test_call_of_a_server_without_url_has_no_headers():
    server = Server("local")

    @server.tool
    def do() -> str:
        return "done"

    async with Toolbox({"s": server}) as toolbox:
        with pytest.raises(ConfigError, match="server 's' has no URL, so its calls have no head"):
            await toolbox.call("s:do", headers={"X-Tenant": "red"})
