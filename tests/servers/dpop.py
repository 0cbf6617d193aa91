"""Checking proofs as a server does (RFC 9449 section 4.3)."""

from __future__ import annotations

import hashlib
import json
from base64 import urlsafe_b64encode
from typing import Any

import jwt


class ProofChecker:
    """The checks of one server.

    Attributes:
        nonce: What a proof must contain; "" for none.
        proofs: The claims of the proofs that were accepted.
    """

    def __init__(self, nonce: str = "") -> None:
        self.nonce = nonce
        self.proofs: list[dict[str, Any]] = []

    def check(self, proof: str, method: str, url: str, token: str = "") -> tuple[str, str]:
        """Check a proof.

        Returns:
            The thumbprint of its key, and why it is refused; "" for a good one.
        """
        header = jwt.get_unverified_header(proof) if proof else {}
        if header.get("typ") != "dpop+jwt" or set(header["jwk"]) != {"kty", "crv", "x", "y"}:
            return "", "invalid_dpop_proof"
        claims = jwt.decode(proof, jwt.PyJWK(header["jwk"]), algorithms=["ES256"])
        expected = {"htm": method, "htu": url, **({"ath": sha256(token.encode())} if token else {})}
        if {name: claims.get(name) for name in expected} != expected:
            return "", "invalid_dpop_proof"
        if claims["jti"] in {each["jti"] for each in self.proofs}:
            return "", "invalid_dpop_proof"
        self.proofs.append(claims)
        canonical = json.dumps(header["jwk"], sort_keys=True, separators=(",", ":"))
        is_missing = self.nonce and claims.get("nonce") != self.nonce
        return sha256(canonical.encode()), "use_dpop_nonce" if is_missing else ""


def sha256(data: bytes) -> str:
    return urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
