"""Options of an endpoint: who identifies its callers."""

from __future__ import annotations

import pytest

from interlock.auth import BearerAuth, Principal, static_tokens
from interlock.errors import ConfigError
from interlock.server.http.http_options import HttpOptions

VERIFY = static_tokens({"token-of-anna-0123": Principal("anna")})
RESOURCE = "https://a.example/mcp"


def test_a_verifier_of_tokens_needs_the_public_url():
    with pytest.raises(ConfigError, match=r"verify_token needs resource=\.\.\."):
        HttpOptions(verify_token=VERIFY).authenticator  # noqa: B018 - reading it is the point

    assert isinstance(HttpOptions(verify_token=VERIFY, resource=RESOURCE).authenticator, BearerAuth)


def test_custom_authenticator_is_used_unchanged():
    auth = BearerAuth(verify=VERIFY, resource=RESOURCE)

    assert HttpOptions(auth=auth, verify_token=VERIFY).authenticator is auth
    assert HttpOptions().authenticator is None
