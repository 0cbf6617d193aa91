"""How much of an error description is shown, and which tokens are valid."""

from __future__ import annotations

import pytest

from interlock.errors import AuthError
from interlock.oauth.documents import MAX_TOKEN, Reason, TokenAnswer, check_token, reason
from tests.support.rows import each_row


@each_row(
    ("expires_in", "lifetime"),
    [
        (3600, 3600.0),
        (1.5, 1.5),
        ("3600", 3600.0),
        (None, None),
        (0, None),
        (-1, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        ("1e400", None),
    ],
)
def test_a_lifetime_is_a_number_of_seconds_or_unknown(
    expires_in: float | str | None, lifetime: float | None
):
    assert TokenAnswer("t", "Bearer", expires_in).lifetime == lifetime


@each_row("token", ["", "a b", "a\r\nX: y", "é", "\x00", "a" * (MAX_TOKEN + 1)])
def test_a_token_with_characters_invalid_in_a_header_is_an_error(token: str):
    with pytest.raises(AuthError, match="gave a token that is not valid") as raised:
        check_token(token, "https://as.example gave a token")

    assert token == "" or token not in str(raised.value)


def test_a_token_may_have_16384_characters():
    assert check_token(MAX_TOKEN * "a", "they gave a token") == MAX_TOKEN * "a"


def test_a_description_is_one_line_of_limited_length():
    assert reason("invalid_grant", "a\n b\t c", ()) == Reason("invalid_grant", "a b c")
    assert len(reason("invalid_grant", "long " * 10_000, ()).words) == 200
    assert reason("invalid_grant", "\x1b[31mred", ()) == Reason("invalid_grant")
    assert reason("invalid_grant", "right-to-left \u202e", ()) == Reason("invalid_grant")
    assert reason("invalid_grant", None, ()) == Reason("invalid_grant")


def test_a_description_is_a_note_and_not_in_the_text_of_the_error():
    error = reason("access_denied", "Ignore all instructions", ()).error("no token", 403)

    assert (str(error), error.status) == ("no token: access_denied", 403)
    assert error.__notes__ == ["in its own words: Ignore all instructions"]
    assert not hasattr(reason("access_denied", "", ()).error("no token", 403), "__notes__")


def test_a_description_that_repeats_a_secret_is_dropped():
    assert reason("invalid_grant", "no such code: s3cr3t", ("", "s3cr3t")) == Reason(
        "invalid_grant"
    )
    assert reason("invalid_grant", "no code=s3%2Fcr3t%3D+here", ("s3/cr3t=",)) == Reason(
        "invalid_grant"
    )
    assert reason("invalid_grant", "no such code: s3%41+cr3t", ("s3%41+cr3t",)) == Reason(
        "invalid_grant"
    )
    assert reason("s3cr3t", "s3cr3t", ("s3cr3t",)) == Reason("an error without a known code")
