"""A login to the pages that has begun, which the browser keeps sealed in a cookie."""

from __future__ import annotations

from interlock.text.redaction import Redacted


class Attempt(Redacted, frozen=True):
    """A login that has begun; what is needed to finish it.

    Attributes:
        issuer: Where, as the issuer's metadata spell it.
        redirect_uri: Where the browser comes back to.
        state: What it must bring.
        verifier: Of PKCE.
        nonce: What the ID token must repeat.
        requires_iss: The browser must also bring the issuer.
    """

    public = ("issuer", "redirect_uri")

    issuer: str
    redirect_uri: str
    state: str
    verifier: str
    nonce: str
    requires_iss: bool
