"""The settings in a server's member `openapi`. Credentials appear in no repr."""

from __future__ import annotations

from msgspec import field

from interlock.text.redaction import Redacted
from interlock.types import JsonObject


class ApiSecret(Redacted, frozen=True):
    """An API key or a bearer token, for any security scheme that sends one text."""

    value: str


class ApiPassword(Redacted, frozen=True):
    """The user name and password for HTTP basic authentication."""

    public = ("username",)

    username: str
    password: str


class ApiClient(Redacted, frozen=True, kw_only=True):
    """A client that gets tokens with its own secret, without a user (OAuth client credentials).

    Attributes:
        token_url: The URL that issues tokens; "" for the URL in the document, which must then be on
            the host of `base_url`.
        scopes: The scopes to request; () for the scopes that the document names for the operations.
    """

    public = ("client_id",)

    client_id: str
    client_secret: str
    scopes: tuple[str, ...] = ()
    token_url: str = ""


class ApiLogin(Redacted, frozen=True, kw_only=True):
    """A user's login to an API, which `interlock servers login` makes.

    Attributes:
        client_id: The client's id at the authorization server; "" to register a client.
        client_secret: The client's secret; "" if the client has no secret.
        scopes: The scopes to request, instead of the scopes that the operations require.
    """

    public = ("client_id",)

    client_id: str = ""
    client_secret: str = ""
    scopes: tuple[str, ...] = ()


ApiCredential = ApiSecret | ApiPassword | ApiClient | ApiLogin


class ApiDocument(Redacted, frozen=True, kw_only=True):
    """An OpenAPI document, the operations in it that become tools, and their credentials.

    Attributes:
        document: The document's file, or its https URL.
        base_url: The URL to which the document's paths are appended.
        auth: The credentials, keyed by the name of a security scheme in the document.
        tools: The settings of each tool in the file, keyed by the tool's name.
        allow_http: Whether credentials may be sent to other machines unencrypted.
        left_out: Why tools of plugins are missing, keyed by the tool's name.
    """

    public = ("document", "base_url", "tools")

    document: str
    base_url: str
    auth: dict[str, ApiCredential] = field(default_factory=dict)
    tools: dict[str, JsonObject] = field(default_factory=dict)
    allow_http: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
