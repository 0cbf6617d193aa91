import re
from typing import Any

import pytest

from interlock import config
from interlock.config import StdioServer, variables
from interlock.errors import ConfigError
from tests.config.support import gateway
from tests.support.rows import each_row

ENVIRON = {"KEY": "k", "EMPTY": "", "NESTED": "${KEY}"}


@each_row(
    ("text", "expected"),
    [
        ("${KEY}", "k"),
        ("a-${KEY}-${KEY}", "a-k-k"),
        ("${env:KEY}", "k"),
        ("${NONE:-d}", "d"),
        ("${NONE:-}", ""),
        ("${NONE:-a\nb}", "a\nb"),
        ("${EMPTY:-d}", "d"),
        ("${EMPTY}", ""),
        ("${NESTED}", "${KEY}"),
        ("$KEY $$ ${", "$KEY $$ ${"),
    ],
)
def test_fill_replaces_each_variable_once(text: str, expected: str) -> None:
    assert variables.fill(text, "command", ENVIRON) == expected


@each_row(
    ("text", "message"),
    [
        (
            "${NONE}",
            "args[1] uses ${NONE}, and the environment variable NONE is not set: set it, "
            "or write ${NONE:-default}",
        ),
        (
            "${input:key}",
            "args[1] uses ${input:key}, which has no answer: give one on a terminal, or set the "
            "environment variable INTERLOCK_INPUT_KEY",
        ),
        (
            "${" + "?" * 1_000 + "}",
            "args[1] uses ${" + "?" * 64 + "}, which cannot be filled in: only environment "
            "variables can, as ${NAME} or ${NAME:-default}",
        ),
    ],
)
def test_fill_refuses_a_reference_that_it_cannot_replace(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        variables.fill(text, "args[1]", ENVIRON)

    assert str(caught.value) == message


@each_row("sharing", ["per_user", "per_session", "per_call"])
def test_user_credential_is_accepted_unless_users_share_the_server(sharing: str):
    loaded = gateway(
        a={"command": "a", "env": {"KEY": "${user:KEY}"}, "sharing": sharing},
        b={"url": "https://b.example", "headers": {"X-Key": "${user:KEY}"}, "sharing": sharing},
    )

    assert loaded.servers["a"] == StdioServer(
        command="a", env={"KEY": "${user:KEY}"}, sharing=sharing
    )
    with pytest.raises(ConfigError, match="a credential of the calling user: store yours with"):
        config.resolve(loaded.servers["b"], {})


@each_row(
    ("entry", "problem"),
    [
        ({"env": {"A": "${user:KEY}"}}, "env.A has .*, but all users share this server"),
        ({"args": ["${user:KEY}"], "sharing": "per_user"}, r"args\[0\] has .*, which only env"),
    ],
)
def test_user_credential_is_refused_elsewhere(entry: dict[str, Any], problem: str):
    loaded = gateway(crm={"command": "crm"} | entry)

    assert re.search(problem, loaded.ignored["crm"])


def test_values_of_the_caller_are_accepted_in_headers_and_variables_of_one_user():
    texts = {"A": "${caller.user}", "B": "x-${caller.claim:org/tenant}", "C": "${header:X-Tenant}"}
    loaded = gateway(
        {"headers": ["x-tenant"]},
        a={"command": "a", "env": texts, "sharing": "per_user"},
        b={"url": "https://b.example", "headers": texts, "sharing": "per_session"},
    )

    values = {"${caller.user}": "user:anna", "${header:X-Tenant}": "${caller.user}"}
    values["${caller.claim:org/tenant}"] = "red"
    for name in ("env", "headers"):
        resolved = config.resolve(loaded.servers["a" if name == "env" else "b"], {}, values)
        assert getattr(resolved, name) == {"A": "user:anna", "B": "x-red", "C": "${caller.user}"}
    with pytest.raises(ConfigError, match="which only calls through a gateway have"):
        config.resolve(loaded.servers["a"], {"caller.user": "user:root"}, {"user": "x"})


PERSONAL = {"sharing": "per_user"}


@each_row(
    ("entry", "problem"),
    [
        ({"env": {"A": "${caller.user}"}}, "env.A has .*, but all users share this server"),
        ({"args": ["${caller.user}"], **PERSONAL}, r"args\[0\] has .*, which only env and headers"),
        (
            {"env": {"A": "${caller.name}"}, **PERSONAL},
            r"of the caller there are \$\{caller.user\}",
        ),
        ({"env": {"A": "${caller.claim:}"}, **PERSONAL}, "of the caller there are"),
        ({"env": {"A": "${header:X-Other}"}, **PERSONAL}, "whose name is not in gateway.headers"),
    ],
)
def test_value_of_the_caller_is_refused_elsewhere(entry: dict[str, Any], problem: str):
    loaded = gateway({"headers": ["X-Tenant"]}, crm={"command": "crm"} | entry)

    assert re.search(problem, loaded.ignored["crm"])
