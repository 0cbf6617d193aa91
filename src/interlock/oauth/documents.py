"""The JSON documents of authorization, named as in their specifications.

Unknown members are ignored. A known member of the wrong type makes the document invalid: its
meaning is not guessed.

RFC 9728 (ResourceMetadata), RFC 8414 (ServerMetadata), RFC 7591 (Registration), RFC 6749
section 5 (TokenAnswer, ErrorAnswer).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote_plus

from msgspec import Struct

from interlock.errors import AuthError, HttpError
from interlock.oauth.fetcher import FetchedResponse
from interlock.text.redaction import Redacted

MAX_TOKEN = 16_384  # characters
MAX_DESCRIPTION = 200

_VISIBLE = re.compile(r"[\x21-\x7e]+")

# Codes of RFC 6749, 7591, 7592, 8628, 8707, 9449 and OpenID Connect. Any other word may be a secret
# that the server repeats.
_CODES = frozenset(
    {
        "access_denied",
        "account_selection_required",
        "consent_required",
        "interaction_required",
        "invalid_client",
        "invalid_client_metadata",
        "invalid_dpop_proof",
        "invalid_grant",
        "invalid_redirect_uri",
        "invalid_request",
        "invalid_scope",
        "invalid_software_statement",
        "invalid_target",
        "invalid_token",
        "login_required",
        "server_error",
        "slow_down",
        "temporarily_unavailable",
        "unapproved_software_statement",
        "unauthorized_client",
        "unsupported_grant_type",
        "unsupported_response_type",
        "use_dpop_nonce",
    }
)


class ResourceMetadata(Struct, frozen=True):
    """The metadata of a protected server. `resource` is used exactly as it is."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class ServerMetadata(Struct, frozen=True):
    """The metadata of an authorization server. `issuer` is used exactly as it is."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    userinfo_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class RegistrationAnswer(Redacted, frozen=True):
    """The answer to a registration."""

    public = ("client_id",)

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | str | None = None  # seconds since 1970; 0 and None: never
    token_endpoint_auth_method: str | None = None

    @property
    def secret_expires_at(self) -> float:
        """The time at which the secret expires, in seconds since 1970; 0 for never or unknown."""
        return _seconds(self.client_secret_expires_at) or 0


class TokenAnswer(Redacted, frozen=True):
    """The answer to a token request."""

    public = ("expires_in", "scope")

    access_token: str
    token_type: str | None = None  # some servers omit it
    expires_in: float | str | None = None  # seconds
    refresh_token: str | None = None
    scope: str | None = None
    id_token: str | None = None  # only with OpenID Connect

    @property
    def lifetime(self) -> float | None:
        """Seconds until the access token expires; None if unknown."""
        return _seconds(self.expires_in)


class ErrorAnswer(Redacted, frozen=True):
    """An error response of an authorization server."""

    error: str
    error_description: str | None = None


def _seconds(written: float | str | None) -> float | None:
    """Return a number that some servers write as a string; None if it is not usable."""
    try:
        seconds = float(written or 0)
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def check_token(token: str, what: str) -> str:
    """Return a token unchanged if a header or a form can carry it.

    Raises:
        AuthError: The token is empty, too long, or has characters that tokens cannot have.
    """
    if len(token) > MAX_TOKEN or not _VISIBLE.fullmatch(token):
        raise AuthError(
            f"{what} that is not valid: empty, over {MAX_TOKEN} characters, or not visible ASCII"
        )
    return token


def error_of(reply: FetchedResponse) -> ErrorAnswer | None:
    """Return the error response in a reply; None if it is not one."""
    try:
        return reply.json(ErrorAnswer)
    except HttpError:
        return None


class Reason(Struct, frozen=True):
    """The reason why an authorization server refuses a request.

    Attributes:
        text: One line without any text of the server.
        words: The server's own description in one line; "" for none, or if it is unsafe to show.
    """

    text: str
    words: str = ""

    def error(self, what: str, status: int) -> AuthError:
        """Return the error for an operation that failed.

        A model may read the error's text, so it contains no text of a server. The server's words
        are added as a note, which only users see.
        """
        error = AuthError(f"{what}: {self.text}", status)
        if self.words:
            error.add_note(f"in its own words: {self.words}")
        return error


def refusal(reply: FetchedResponse, secrets: Collection[str] = ()) -> Reason:
    """Return the reason in a refusal. Its words contain none of `secrets`."""
    error = error_of(reply)
    if error is None:
        return Reason(f"it answers {reply.status}")
    return reason(error.error, error.error_description, secrets)


def reason(error: str, description: str | None, secrets: Collection[str]) -> Reason:
    """Return the reason why an authorization server refuses a request.

    Args:
        error: The error code.
        description: The server's words.
        secrets: A description that contains one of these is dropped.
    """
    code = error if error in _CODES else "an error without a known code"
    words = " ".join((description or "").split())
    plain = unquote_plus(words)
    hidden = any(secret and (secret in words or secret in plain) for secret in secrets)
    if not words or hidden or not words.isprintable():
        return Reason(code)
    return Reason(code, words[:MAX_DESCRIPTION])
