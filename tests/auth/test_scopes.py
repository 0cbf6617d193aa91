"""Challenges that ask for further scopes."""

from __future__ import annotations

from interlock.auth.scopes import scope_challenge
from tests.support.rows import each_row


@each_row(
    "challenge, wanted",
    [
        ("Bearer", 'Bearer error="insufficient_scope", scope="a b"'),
        (
            'Bearer resource_metadata="https://x/y", scope="b c"',
            'Bearer error="insufficient_scope", resource_metadata="https://x/y", scope="b c a"',
        ),
        (
            'DPoP algs="ES256", error="invalid_token"',
            'DPoP error="insufficient_scope", algs="ES256", scope="a b"',
        ),
        ("", ""),
        ('Basic realm="x"', ""),
    ],
)
def test_a_challenge_for_scopes_keeps_what_the_usual_challenge_states(challenge, wanted):
    assert scope_challenge(challenge, ["a", "b"]) == wanted
