"""`interlock token`: the credential of a server on stdout, and nothing else."""

from __future__ import annotations

import asyncio
from time import time
from typing import Any

import pytest

from interlock.oauth import UserTokenStore
from interlock.oauth.storage import Tokens

URL = "https://tools.example/mcp"


def store_login(**changes: Any) -> None:
    given = {"access_token": "token-1234", "issuer": "https://as.example", **changes}
    asyncio.run(UserTokenStore().save_tokens(URL, Tokens(**given)))


def test_headers_of_a_stored_login_are_a_json_object(interlock, home):
    store_login()

    assert interlock("token", "--headers", URL).json == {"Authorization": "Bearer token-1234"}
    assert interlock("token", URL) == (0, "token-1234\n", "")


def test_headers_of_the_file_are_used_with_variables_replaced(
    interlock, servers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TOOLS_KEY", "ilk_key")
    servers(
        tools={"url": URL, "headers": {"Authorization": "Bearer ${TOOLS_KEY}", "X-Team": "a"}},
        other={"url": "https://${NOT_SET}/mcp"},
    )

    assert interlock("token", "--headers", URL).json == {
        "Authorization": "Bearer ilk_key",
        "X-Team": "a",
    }
    assert interlock("token", URL).out == "ilk_key\n"


def test_login_and_further_headers_of_the_file_are_joined(interlock, servers):
    servers(tools={"url": URL, "auth": "oauth", "headers": {"X-Team": "a"}})
    store_login()

    assert interlock("token", "--headers", URL).json == {
        "X-Team": "a",
        "Authorization": "Bearer token-1234",
    }


@pytest.mark.parametrize("changes", [None, {"expires_at": time() - 1}], ids=["none", "expired"])
def test_missing_or_expired_login_is_an_error_that_says_how_to_log_in(
    interlock, home, changes: dict[str, Any] | None
):
    if changes is not None:
        store_login(**changes)

    ran = interlock("token", "--headers", URL)
    assert (ran.code, ran.out) == (1, "")
    assert "interlock servers login" in ran.err


def test_token_that_is_bound_to_a_key_is_not_printed(interlock, home):
    from interlock.oauth.dpop import DpopKey

    store_login(dpop_key=DpopKey().pem)

    ran = interlock("token", "--headers", URL)
    assert (ran.code, ran.out) == (1, "")
    assert "is bound to a key" in ran.err
