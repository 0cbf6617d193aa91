from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import ConfigError
from interlock.oauth import ClientIdentity
from tests.support.rows import each_row


@each_row(
    ("members", "problem"),
    [
        ({"id": ""}, "a client identity needs an id"),
        ({"id": "c", "secret": "s", "private_key": "k"}, "has a secret and a private key"),
        ({"id": "c", "auth_method": "basic"}, "must be one of client_secret_basic"),
    ],
)
def test_contradictory_identity_is_refused(members: dict[str, Any], problem: str):
    with pytest.raises(ConfigError, match=problem):
        ClientIdentity(**members)


def test_repr_shows_neither_secret_nor_key():
    assert "canary" not in repr(ClientIdentity(id="c", secret="canary"))
    assert "canary" not in repr(ClientIdentity(id="c", private_key="canary"))
