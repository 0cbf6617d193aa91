"""A login to the pages that has begun; the browser keeps it, sealed, in a cookie."""

from __future__ import annotations

from interlock.text.redaction import Redacted


class Attempt(Redacted, frozen=True):
    """The data that is needed to finish a login.

    Attributes:
        issuer: The issuer, as its metadata spell it.
        redirect_uri: The URL that the browser returns to.
        state: The state that the browser must return.
        verifier: The PKCE verifier.
        nonce: The nonce that the ID token must repeat.
        requires_iss: Whether the browser must also return the issuer.
    """

    public = ("issuer", "redirect_uri")

    issuer: str
    redirect_uri: str
    state: str
    verifier: str
    nonce: str
    requires_iss: bool
