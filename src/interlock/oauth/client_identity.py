"""A client as an authorization server knows it."""

from __future__ import annotations

from interlock.errors import ConfigError
from interlock.quoting import echo
from interlock.redaction import Redacted

METHODS = ("client_secret_basic", "client_secret_post", "private_key_jwt", "none")


class ClientIdentity(Redacted, frozen=True, kw_only=True):
    """A client that an authorization server knows.

    Attributes:
        id: Its `client_id`.
        secret: Its `client_secret`; "" for none.
        private_key: PEM of the key whose public half the authorization server has; "" for none.
        algorithm: That of the key, such as "ES256"; "" takes the usual one for its kind.
        issuer: The authorization server that knows it; "" for the first one that the server
            names, which the store remembers. Another one is never shown this identity.
        auth_method: One of `METHODS`; "" takes the best one that the authorization server offers.

    Raises:
        ConfigError: No id, a secret and a key, or a method that is none.
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
        """What must be in no message."""
        return tuple(each for each in (self.secret, self.private_key) if each)
