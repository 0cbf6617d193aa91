"""A login to the pages in progress, which the browser stores encrypted in a cookie."""

from __future__ import annotations

from interlock.text.redaction import Redacted


class Attempt(Redacted, frozen=True):
    """The data that is needed to complete a login.

    Attributes:
        issuer: The issuer, as spelled in its metadata.
        redirect_uri: The URL of the callback.
        state: The state that the callback must contain.
        verifier: The PKCE verifier.
        nonce: The nonce that the ID token must contain.
        requires_iss: Whether the callback must also contain the issuer.
    """

    public = ("issuer", "redirect_uri")

    issuer: str
    redirect_uri: str
    state: str
    verifier: str
    nonce: str
    requires_iss: bool
