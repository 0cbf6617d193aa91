"""Variables in the configuration of a server."""

from typing import Any

import pytest

from interlock import config
from interlock.config import HttpServer, OAuthClient, StdioServer
from interlock.errors import ConfigError
from tests.support.rows import each_row


@each_row(
    ("text", "expected"),
    [
        ("${KEY}", "k"),
        ("${NONE:-d}", "d"),
    ],
)
def test_resolve_replaces_variables_in_every_text_of_a_server(text: str, expected: str) -> None:
    environ = {"KEY": "k"}
    stdio = StdioServer(command=text, args=("a", text), env={"A": text}, cwd=text)
    http = HttpServer(
        url=f"https://h/{text}",
        headers={"A": text},
        oauth=OAuthClient(client_id=text, client_secret=text),
    )

    assert config.resolve(stdio, environ) == StdioServer(
        command=expected, args=("a", expected), env={"A": expected}, cwd=expected
    )
    assert config.resolve(http, environ) == HttpServer(
        url=f"https://h/{expected}",
        headers={"A": expected},
        oauth=OAuthClient(client_id=expected, client_secret=expected),
    )


@each_row(
    ("server", "message"),
    [
        (
            StdioServer(command="x", env={"TOKEN": "${KEY}"}),
            "env.TOKEN uses ${KEY}, and the environment variable KEY is not set: set it, "
            "or write ${KEY:-default}",
        ),
        (
            HttpServer(url="https://h", headers={"A": "Bearer ${input:key}"}),
            "headers.A uses ${input:key}, which has no answer: give one on a terminal, or set the "
            "environment variable INTERLOCK_INPUT_KEY",
        ),
        (HttpServer(url="${URL}"), "url must start with https:// or http://"),
        (
            HttpServer(url="https://h", headers={"A": "${LINES}"}),
            "headers.A has a line break or another control character",
        ),
    ],
)
def test_resolve_refuses_a_server_that_it_cannot_complete(server: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        config.resolve(server, {"URL": "file:///etc/passwd", "LINES": "a\r\nb"})

    assert str(caught.value) == message
