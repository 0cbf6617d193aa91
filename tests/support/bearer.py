"""What the authorizations of the tests share: their token is sent as a bearer token."""

from __future__ import annotations

from collections.abc import Mapping


class BearerHeaders:
    """The part of an `Authorization` that concerns one request."""

    token = ""

    def headers(self, method: str, url: str) -> Mapping[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}

    def needs_resend(self, status: int, headers: Mapping[str, str]) -> bool:
        return False
