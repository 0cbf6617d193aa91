"""The member `openapi` of a configured server. No repr contains a credential."""

from __future__ import annotations

from msgspec import field

from interlock.text.redaction import Redacted
from interlock.types import JsonObject


class ApiSecret(Redacted, frozen=True):
    """A key or a bearer token, for any scheme that sends one text."""

    value: str


class ApiPassword(Redacted, frozen=True):
    """The user and the password of HTTP basic authentication."""

    public = ("username",)

    username: str
    password: str


class ApiClient(Redacted, frozen=True, kw_only=True):
    """A client with a secret, which gets tokens without a user (OAuth client credentials).

    Attributes:
        token_url: The URL that issues tokens; "" for the URL in the document, if that is on the
            host of `base_url`.
        scopes: The scopes to request; () for those that the document names for the operations.
    """

    public = ("client_id",)

    client_id: str
    client_secret: str
    scopes: tuple[str, ...] = ()
    token_url: str = ""


class ApiLogin(Redacted, frozen=True, kw_only=True):
    """A user's own login, made by `interlock servers login`.

    Attributes:
        client_id: The client that is registered at the authorization server; "" registers one.
        client_secret: The client's secret; "" for none.
        scopes: The scopes to request instead of those of the operations.
    """

    public = ("client_id",)

    client_id: str = ""
    client_secret: str = ""
    scopes: tuple[str, ...] = ()


ApiCredential = ApiSecret | ApiPassword | ApiClient | ApiLogin


class ApiDocument(Redacted, frozen=True, kw_only=True):
    """A document, the operations in it that become tools, and their credentials.

    Attributes:
        document: A file, or an https URL.
        base_url: The URL to which the paths of the document are appended.
        auth: The credentials by the name of a security scheme in the document.
        tools: The file's settings of each tool, by its name.
        allow_http: Whether credentials may be sent to other machines without TLS.
        left_out: The reasons why tools of plugins are missing, by the names of the tools.
    """

    public = ("document", "base_url", "tools")

    document: str
    base_url: str
    auth: dict[str, ApiCredential] = field(default_factory=dict)
    tools: dict[str, JsonObject] = field(default_factory=dict)
    allow_http: bool = False
    left_out: dict[str, str] = field(default_factory=dict)
