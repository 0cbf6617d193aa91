"""Whether a server can be used, and the stable word for why not."""

from __future__ import annotations

import pytest

from interlock.errors import AuthRequired, HttpError, LoginExpired, LoginRequired, ServerUnavailable
from interlock.toolbox.server_health import ServerHealth, State, state_of
from tests.support.rows import each_row


def health() -> ServerHealth:
    return ServerHealth("s", lambda: None)


@each_row(
    ("state", "code"),
    [
        ("ok", ""),
        ("down", "server_down"),
        ("failed", "server_down"),
        ("refused", "server_down"),
        ("expired", "needs_login"),
        ("needs login", "needs_login"),
    ],
)
def test_each_server_state_has_a_stable_reason_code(state: State, code: str):
    server = health()
    server.set(state, "why")

    assert server.obstacle == (code, "why" if code else "")


def test_disabled_server_stays_disabled_when_it_is_closed():
    server = health()
    server.disable()
    server.close()

    with pytest.raises(ServerUnavailable, match="disabled in the configuration") as caught:
        server.check_start()
    assert caught.value.code == "server_disabled"


def test_on_change_is_not_called_for_an_equal_state():
    changes: list[str] = []
    server = ServerHealth("s", lambda: changes.append(server.state))
    for state, reason in (("ok", ""), ("ok", ""), ("down", "gone"), ("down", "still gone")):
        server.set(state, reason)  # type: ignore[arg-type]

    assert changes == ["ok", "down", "down"]


def test_rejected_credentials_decide_the_state():
    errors = [
        LoginExpired("log in", 401),
        LoginRequired("log in", 401),
        AuthRequired("no", 401),
        HttpError("broken", 500),
    ]

    assert [state_of(each) for each in errors] == ["expired", "needs login", "refused", None]
