"""The documents of OAuth, with members named as in their specifications.

Rules:

1. Members are decoded one by one. An optional member of the wrong type counts as missing, so that
   it affects only what needs it. A required member of the wrong type makes the document unusable.
2. What has only one meaning is accepted: a text where a list belongs is a list of its words, and
   "true" is true.

RFC 9728 (ResourceMetadata), RFC 8414 (ServerMetadata), RFC 7591 (Registration), RFC 6749
section 5 (TokenAnswer, ErrorAnswer).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote_plus

from msgspec import NODEFAULT, Struct
from msgspec.structs import fields

from interlock.errors import AuthError, HttpError
from interlock.oauth.fetcher import FetchedResponse
from interlock.text.quoting import kind
from interlock.text.redaction import Redacted
from interlock.text.urls import display
from interlock.types import JsonObject

MAX_TOKEN = 16_384  # characters
MAX_DESCRIPTION = 200  # characters
_FIRST = 1_000_000_000  # seconds since 1970: a time before OAuth existed

_VISIBLE = re.compile(r"[\x21-\x7e]+")
_BETWEEN = re.compile(r"[\s,]+")  # between the words of a list that is written as a text
_T = TypeVar("_T", bound=Struct)

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


_CHECK_CLIENT = (
    "check the client: --client-id and --client-secret, or clientId in the configuration"
)
_WAYS_OUT = {
    "invalid_client": _CHECK_CLIENT,
    "invalid_scope": "choose the scopes with --scope or as scopes in the configuration",
    "unauthorized_client": _CHECK_CLIENT,
}


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
        expires_at = _seconds(self.client_secret_expires_at) or 0
        return expires_at if expires_at >= _FIRST else 0  # smaller numbers are often durations


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


# Reading


def read(reply: FetchedResponse, type: type[_T]) -> _T:
    """Decode a document member by member.

    Raises:
        HttpError: The document is not a JSON object, or a required member is missing or unusable.
    """
    return _decoded(reply.json(), type, reply)


def read_registration(reply: FetchedResponse) -> RegistrationAnswer:
    """Decode the response to a registration; some servers number their clients.

    Raises:
        HttpError: As from `read`.
    """
    members: JsonObject = reply.json()
    for name in ("client_id", "client_secret"):
        if isinstance(value := members.get(name), int) and not isinstance(value, bool):
            members[name] = str(value)
    return _decoded(members, RegistrationAnswer, reply)


def read_tokens(reply: FetchedResponse) -> TokenAnswer:
    """Decode the response to a token request.

    Raises:
        HttpError: The response has no access token, or one of a type that is not a text.
    """
    members = token_members(reply)
    if isinstance(scope := members.get("scope"), str | list):
        members["scope"] = " ".join(_words(scope) or ())
    if not isinstance(written := members.get("token_type"), str | None):
        raise _unusable(reply, f'its member "token_type" is {kind(written)}, not a string')
    return _decoded(members, TokenAnswer, reply)


def token_members(reply: FetchedResponse) -> JsonObject:
    """Return the members of a token endpoint's response, which may be a form, as from GitHub.

    Raises:
        HttpError: The response is neither a JSON object nor such a form.
    """
    if reply.is_json_object:
        return reply.json()
    try:
        pairs = parse_qsl(reply.body.decode().strip(), strict_parsing=True, max_num_fields=100)
    except ValueError:
        pairs = []
    members: JsonObject = dict(pairs)
    # A repeated member has no clear meaning. A page for people has neither of these members.
    if len(members) != len(pairs) or not members.keys() & {"access_token", "error"}:
        return reply.json()  # raises the error that describes the body
    return members


def _decoded(members: JsonObject, type: type[_T], reply: FetchedResponse) -> _T:
    found: dict[str, Any] = {}
    for field in fields(type):
        value = members.get(field.encode_name)
        usable = _READERS[field.type](value)
        if usable is not None:
            found[field.name] = usable
        elif field.default is NODEFAULT:
            name = f'member "{field.encode_name}"'
            problem = f"it has no {name}"
            if field.encode_name in members:
                problem = f"its {name} is {kind(value)}, not a string"
            raise _unusable(reply, problem)
    return type(**found)


def _unusable(reply: FetchedResponse, problem: str) -> HttpError:
    return HttpError(f"{display(reply.url)} cannot be used: {problem}", reply.status)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _words(value: object) -> list[str] | None:
    if isinstance(value, str):
        return [each for each in _BETWEEN.split(value) if each]
    if isinstance(value, list):
        return [each for each in value if isinstance(each, str)]
    return None


def _flag(value: object) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value.lower())
    return value if isinstance(value, bool) else None


def _number(value: object) -> float | str | None:
    is_number = isinstance(value, str | int | float) and not isinstance(value, bool)
    return value if is_number else None  # type: ignore[return-value]  # mypy loses the narrowing


_READERS = {
    str: _text,
    str | None: _text,
    list[str] | None: _words,
    bool | None: _flag,
    float | str | None: _number,
}


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
        answer = _decoded(token_members(reply), ErrorAnswer, reply)
    except HttpError:
        return None
    return answer if answer.error else None


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
        return _reason(f"it answers {reply.status}", _words_of(reply), secrets)
    words = error.error_description
    if not words and error.error not in _CODES:  # such as Slack's "invalid_code"
        words = error.error
    return reason(error.error, words, secrets)


def _words_of(reply: FetchedResponse) -> str | None:
    """Return the server's description in a refusal that is not in OAuth's form."""
    try:
        told: JsonObject = reply.json()
    except HttpError:
        return None
    inner = told.get("error")
    places = (told, inner) if isinstance(inner, dict) else (told,)
    found = (each.get(name) for each in places for name in ("message", "msg", "detail"))
    return next((each for each in found if isinstance(each, str)), None)


def reason(error: str, description: str | None, secrets: Collection[str]) -> Reason:
    """Return the reason from an OAuth error.

    Args:
        error: The OAuth error code.
        description: The server's own words; None if it sent none.
        secrets: If the description contains one of these secrets, it is dropped.
    """
    code = error if error in _CODES else "an error without a known code"
    if way_out := _WAYS_OUT.get(code):
        code += f"; {way_out}"
    return _reason(code, description, secrets)


def _reason(text: str, description: str | None, secrets: Collection[str]) -> Reason:
    words = " ".join((description or "").split())
    plain = unquote_plus(words)
    hidden = any(secret and (secret in words or secret in plain) for secret in secrets)
    if not words or hidden or not words.isprintable():
        return Reason(text)
    return Reason(text, words[:MAX_DESCRIPTION])
