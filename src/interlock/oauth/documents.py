"""The JSON documents of OAuth, with members named as in their specifications.

Unknown members are ignored. If a known member has the wrong type, the whole document is invalid,
because its meaning could only be guessed.

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
MAX_DESCRIPTION = 200  # characters

_VISIBLE = re.compile(r"[\x21-\x7e]+")

# Error codes of RFC 6749, 7591, 7592, 8628, 8707, 9449 and OpenID Connect. Other words are not
# shown, because a server may repeat a secret there.
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
    """The metadata of a protected server. Its `resource` is used without normalization."""

    resource: str
    authorization_servers: list[str] | None = None
    scopes_supported: list[str] | None = None
    dpop_bound_access_tokens_required: bool | None = None
    dpop_signing_alg_values_supported: list[str] | None = None


class ServerMetadata(Struct, frozen=True):
    """The metadata of an authorization server. Its `issuer` is used without normalization."""

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
    """The response to a client registration."""

    public = ("client_id",)

    client_id: str
    client_secret: str | None = None
    client_secret_expires_at: float | str | None = None  # seconds since 1970; 0 or None for never
    token_endpoint_auth_method: str | None = None

    @property
    def secret_expires_at(self) -> float:
        """When the secret expires, in seconds since 1970; 0 if never or unknown."""
        return _seconds(self.client_secret_expires_at) or 0


class TokenAnswer(Redacted, frozen=True):
    """The response to a successful token request."""

    public = ("expires_in", "scope")

    access_token: str
    token_type: str | None = None  # some servers omit it
    expires_in: float | str | None = None  # seconds
    refresh_token: str | None = None
    scope: str | None = None
    id_token: str | None = None  # sent only with OpenID Connect

    @property
    def lifetime(self) -> float | None:
        """The seconds until the access token expires; None if unknown."""
        return _seconds(self.expires_in)


class ErrorAnswer(Redacted, frozen=True):
    """An OAuth error response from an authorization server."""

    error: str
    error_description: str | None = None


def _seconds(written: float | str | None) -> float | None:
    """Convert a number that some servers send as a string; return None if it is not usable."""
    try:
        seconds = float(written or 0)
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def check_token(token: str, what: str) -> str:
    """Return a token unchanged if it can be sent in a header or a form.

    Raises:
        AuthError: The token is empty, too long, or contains characters that are invalid in tokens.
    """
    if len(token) > MAX_TOKEN or not _VISIBLE.fullmatch(token):
        raise AuthError(
            f"{what} that is not valid: empty, over {MAX_TOKEN} characters, or not visible ASCII"
        )
    return token


def error_of(reply: FetchedResponse) -> ErrorAnswer | None:
    """Return the OAuth error in a response; None if the response contains no OAuth error."""
    try:
        return reply.json(ErrorAnswer)
    except HttpError:
        return None


class Reason(Struct, frozen=True):
    """Why an authorization server refused a request.

    Attributes:
        text: One line that contains no text from the server.
        words: The server's own description in one line; "" if it is missing or unsafe to show.
    """

    text: str
    words: str = ""

    def error(self, what: str, status: int) -> AuthError:
        """Return the error for the failed operation `what`.

        A model may read the error's text, so the text contains nothing from the server. The
        server's own words are added as a note, which only users see.
        """
        error = AuthError(f"{what}: {self.text}", status)
        if self.words:
            error.add_note(f"in its own words: {self.words}")
        return error


def refusal(reply: FetchedResponse, secrets: Collection[str] = ()) -> Reason:
    """Return the reason in a refusal. The server's words are dropped if they contain a secret."""
    error = error_of(reply)
    if error is None:
        return Reason(f"it answers {reply.status}")
    return reason(error.error, error.error_description, secrets)


def reason(error: str, description: str | None, secrets: Collection[str]) -> Reason:
    """Return the reason from an OAuth error.

    Args:
        error: The OAuth error code.
        description: The server's own words; None if it sent none.
        secrets: If the description contains one of these secrets, it is dropped.
    """
    code = error if error in _CODES else "an error without a known code"
    words = " ".join((description or "").split())
    plain = unquote_plus(words)
    hidden = any(secret and (secret in words or secret in plain) for secret in secrets)
    if not words or hidden or not words.isprintable():
        return Reason(code)
    return Reason(code, words[:MAX_DESCRIPTION])
