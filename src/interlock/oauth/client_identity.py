"""A client's identity at an authorization server."""

from __future__ import annotations

from interlock.errors import ConfigError
from interlock.text.quoting import echo
from interlock.text.redaction import Redacted

METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")


class ClientIdentity(Redacted, frozen=True, kw_only=True):
    """A client that is registered at an authorization server.

    Attributes:
        id: The `client_id`.
        secret: The `client_secret`; "" if the client has no secret.
        private_key: The private key as PEM, whose public key the authorization server knows; "" if
            the client has no key.
        algorithm: The signature algorithm, such as "ES256"; "" for the default for the key's type.
        issuer: The only authorization server to which id and secret are sent; it is used whatever
            the MCP server names. If "", this is the first one that the MCP server names, and the
            store remembers it.
        auth_method: One of `METHODS`; "" for the first method that the authorization server
            supports.

    Raises:
        ConfigError: The id is missing, both secret and key are set, or the method is unknown.
    """

    public = ("id", "issuer")

    id: str
    secret: str = ""
    private_key: str = ""
    algorithm: str = ""
    issuer: str = ""
    auth_method: str = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise ConfigError("a client identity needs an id")
        if self.secret and self.private_key:
            raise ConfigError(f"client {self.id!r} has a secret and a private key; give one")
        if self.auth_method and self.auth_method not in METHODS:
            known = ", ".join(METHODS)
            raise ConfigError(f"auth_method {echo(self.auth_method)} must be one of {known}")

    @property
    def secrets(self) -> tuple[str, ...]:
        """The client's secrets, which no message may contain."""
        return tuple(each for each in (self.secret, self.private_key) if each)
