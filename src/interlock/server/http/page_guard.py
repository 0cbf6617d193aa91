"""The checks of requests to the web pages and their JSON routes, which come before all else.

1. Host and Origin are checked as for the endpoint, and a page of another origin is refused.
2. `Sec-Fetch-Site`, where the browser sends it, must be "same-origin"; for GET "none" is allowed.
3. A body must be `application/json`, which a page of another origin cannot send without a
   preflight request.
4. A request with a page's session that changes something must have an Origin, which every
   browser sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from interlock.auth.page_session import PAGE_KEY
from interlock.server.http.guard import Guard
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal
from interlock.text.urls import is_loopback

SAFE = ("GET", "HEAD")
_WITH_BODY = ("POST", "PUT", "PATCH")


class PageGuard:
    """Checks every request to the pages.

    Args:
        hosts: Allowed values of `Host`; see `Guard`.
        public_url: The URL of the pages for browsers; "" for the URL where they are served.
    """

    def __init__(self, hosts: Sequence[str] | None = None, public_url: str = "") -> None:
        self._origin = ""
        if public_url:
            parts = urlsplit(public_url)
            self._origin = f"{parts.scheme}://{parts.netloc}".lower()
        self._guard = Guard(hosts, [self._origin] if self._origin else [], ())

    def check(self, request: HttpRequest) -> None:
        """Check one request.

        Raises:
            HttpRefusal: 403, 415, or 400 for a repeated header.
        """
        self.check_origin(request)
        self.check_content(request)

    def check_content(self, request: HttpRequest) -> None:
        """Check the rest of one request, once its path is known.

        Raises:
            HttpRefusal: 415, or 403 for a session's request without Origin.
        """
        method: str = request.scope.get("method", "GET")
        if method in _WITH_BODY:
            request.check_media()
        if method not in SAFE and PAGE_KEY in request.headers and b"origin" not in request.headers:
            raise HttpRefusal(403, "a request of a page must state its Origin")

    def check_origin(self, request: HttpRequest) -> None:
        """Check the origin of one request; sufficient for the upgrade to a WebSocket.

        Raises:
            HttpRefusal: 403, or 400 for a repeated header.
        """
        self._guard.check(request)
        origin = request.header(b"origin")
        if origin is not None and not self._is_ours(origin.lower(), request.header(b"host")):
            raise HttpRefusal(403, "this Origin is not the one of these pages")
        site = request.header(b"sec-fetch-site")
        is_get = request.scope.get("method", "GET") in SAFE
        if site not in (None, "same-origin") and not (site == "none" and is_get):
            raise HttpRefusal(403, "requests of other sites are refused")

    def _is_ours(self, origin: str, host: str | None) -> bool:
        if self._origin and origin == self._origin:
            return True
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https") or place != (host or "").lower():
            return False
        return not self._origin or is_loopback(urlsplit(origin).hostname or "")
