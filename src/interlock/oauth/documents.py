"""The JSON documents of authorization, named as in their specifications.

Members that are not here are passed over. A member that is here and has another type makes the
document unusable: nobody guesses what it was meant to say.

RFC 9728 (ResourceMetadata), RFC 8414 (ServerMetadata), RFC 7591 (Registration), RFC 6749
section 5 (TokenAnswer, ErrorAnswer).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import unquote_plus

from msgspec import Struct

from interlock.errors import AuthError, HttpError
from interlock.oauth.fetcher import Reply
from interlock.redaction import Redacted

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
    """What a protected server says of itself. `resource` is used as it is written."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class ServerMetadata(Struct, frozen=True):
    """What an authorization server says of itself. `issuer` is used as it is written."""

    issuer: str
    authorization_endpoint: str | None = None
    token_endpoint: str | None = None
    registration_endpoint: str | None = None
    revocation_endpoint: str | None = None
    scopes_supported: list[str] | None = None
    code_challenge_methods_supported: list[str] | None = None
    token_endpoint_auth_methods_supported: list[str] | None = None
    token_endpoint_auth_signing_alg_values_supported: list[str] | None = None
    authorization_response_iss_parameter_supported: bool | None = None
    client_id_metadata_document_supported: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class RegistrationAnswer(Redacted, frozen=True):
    """A client as the authorization server has registered it."""

    public = ("client_id",)

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | str | None = None  # seconds since 1970; 0 and None: never
    token_endpoint_auth_method: str | None = None

    @property
    def secret_expires_at(self) -> float:
        """When the secret ends, in seconds since 1970; 0 for never, or when nobody knows."""
        return _seconds(self.client_secret_expires_at) or 0


class TokenAnswer(Redacted, frozen=True):
    """New tokens."""

    public = ("expires_in", "scope")

    access_token: str
    token_type: str | None = None  # some leave it out
    expires_in: float | str | None = None  # seconds
    refresh_token: str | None = None
    scope: str | None = None

    @property
    def lifetime(self) -> float | None:
        """Seconds that the access token is good for; None when nobody knows."""
        return _seconds(self.expires_in)


class ErrorAnswer(Redacted, frozen=True):
    """Why an authorization server refuses."""

    error: str
    error_description: str | None = None


def _seconds(written: float | str | None) -> float | None:
    """Read a number that some write as a string; None for one that says nothing."""
    try:
        seconds = float(written or 0)
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def check_token(token: str, what: str) -> str:
    """Give the token back if a header or a form can carry it.

    Raises:
        AuthError: It is empty, too long, or has characters that no token has.
    """
    if len(token) > MAX_TOKEN or not _VISIBLE.fullmatch(token):
        raise AuthError(f"{what} that is none: empty, over {MAX_TOKEN} characters, or not ASCII")
    return token


def error_of(reply: Reply) -> ErrorAnswer | None:
    """Give why an authorization server refuses, if it says so in the way it should."""
    try:
        return reply.json(ErrorAnswer)
    except HttpError:
        return None


class Reason(Struct, frozen=True):
    """Why an authorization server refuses.

    Attributes:
        text: Ours, in one line.
        words: Its own, in one line; "" for none, and for those that cannot be shown.
    """

    text: str
    words: str = ""

    def error(self, what: str, status: int) -> AuthError:
        """Make the error for what did not work.

        Its text may get to a model, which is not to read what anybody may have written: the
        words are a note of the error, for people.
        """
        error = AuthError(f"{what}: {self.text}", status)
        if self.words:
            error.add_note(f"in its own words: {self.words}")
        return error


def refusal(reply: Reply, secrets: Collection[str] = ()) -> Reason:
    """Tell what a reply says that is no success, without `secrets`."""
    error = error_of(reply)
    if error is None:
        return Reason(f"it answers {reply.status}")
    return reason(error.error, error.error_description, secrets)


def reason(error: str, description: str | None, secrets: Collection[str]) -> Reason:
    """Tell why an authorization server refuses.

    Args:
        error: The code it gave.
        description: Its words.
        secrets: What it must not repeat to people; words with one of these are left out.
    """
    code = error if error in _CODES else "an error without a known code"
    words = " ".join((description or "").split())
    plain = unquote_plus(words)
    hidden = any(secret and (secret in words or secret in plain) for secret in secrets)
    if not words or hidden or not words.isprintable():
        return Reason(code)
    return Reason(code, words[:MAX_DESCRIPTION])
