"""Secrets of one server in texts, errors and reprs."""

from __future__ import annotations

from dataclasses import dataclass

from interlock.errors import HttpError, RemoteError
from interlock.text.redaction import Redacted, Redactor, redact_arguments, redact_error
from tests.support.rows import each_row


@dataclass
class Login:
    token: str


def test_redact_replaces_each_secret_longest_first():
    redactor = Redactor(["abcdef", "Bearer abcdef"])

    assert redactor.redact("sent Bearer abcdef, then abcdef") == "sent ***, then ***"


def test_redact_keeps_short_values_readable():
    assert Redactor(["8080", ""]).redact("port 8080") == "port 8080"


def test_redact_uses_the_token_that_is_valid_now():
    login = Login("first-token")
    redactor = Redactor(authorization=login)
    login.token = "second-token"

    assert redactor.redact("first-token second-token") == "first-token ***"


@each_row(
    ("args", "shown"),
    [
        (["--token=abc"], ["--token=***"]),
        (["--api-key", "abc", "x"], ["--api-key", "***", "x"]),
        (["--dbPassword", "abc"], ["--dbPassword", "***"]),
        (["-e", "CRM_SECRET=abc"], ["-e", "CRM_SECRET=***"]),
        (["--header", "Authorization: Bearer abc"], ["--header", "Authorization: Bearer ***"]),
        (["X-Api-Key:abc"], ["X-Api-Key:***"]),
        (["https://h/?api_key=abc"], ["https://h/?api_key=***"]),
        (['{"token": "abc"}'], ['{"token": "***']),
        (["--sort-key=name"], ["--sort-key=***"]),  # better once too often
        (["--token", "--verbose"], ["--token", "--verbose"]),
        (["--max-tokens", "4096"], ["--max-tokens", "4096"]),
        (["--key-file", "k.pem"], ["--key-file", "k.pem"]),
        (["mcp/token:latest", "--token="], ["mcp/token:latest", "--token="]),
        (["--dsn", "filled-in"], ["--dsn", "***"]),
    ],
)
def test_arguments_with_a_secret_sounding_name_are_redacted(args: list[str], shown: list[str]):
    assert redact_arguments(args, Redactor(["filled-in"])) == shown


def test_redact_error_cleans_text_and_attributes_of_a_copy():
    error = RemoteError(-32000, "no access for secret-key", {"secret-key": ["secret-key", 1]})

    clean = redact_error(error, Redactor(["secret-key"]))

    assert "secret-key" not in str(clean)
    assert (clean.code, clean.data) == (-32000, {"***": ["***", 1]})
    assert "secret-key" in str(error)


def test_redact_error_keeps_class_and_status():
    clean = redact_error(HttpError("secret-key is wrong", 403), Redactor(["secret-key"]))

    assert (type(clean), clean.status, str(clean)) == (HttpError, 403, "*** is wrong")


def test_repr_of_a_redactor_has_no_secret():
    assert repr(Redactor(["secret-key"])) == "Redactor(1)"


class Account(Redacted, frozen=True):
    public = ("name",)
    name: str
    password: str


def test_repr_of_redacted_shows_public_members_only():
    assert repr(Account("ada", "secret-key")) == "Account(name='ada')"
