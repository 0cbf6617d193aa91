"""The first checks of requests to the web pages and to their JSON routes.

1. Host and Origin are checked as at the endpoint, and other origins are refused.
2. `Sec-Fetch-Site`, if the browser sends it, must be "same-origin", or "none" for GET.
3. A body must be `application/json`. A page of another origin cannot send that without a preflight
   request.
4. A request that has a cookie or a page key and changes something must have an Origin, which every
   browser sends.
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from interlock.auth.page_session import PAGE_KEY
from interlock.server.http.guard import Guard
from interlock.server.http.proxies import stated_origin
from interlock.server.http.request import HttpRequest
from interlock.server.http.responses import HttpRefusal
from interlock.text.urls import is_loopback

SAFE = ("GET", "HEAD")
_WITH_BODY = ("POST", "PUT", "PATCH")


def check_has_origin(request: HttpRequest) -> None:
    """Check that a request which may use a page session, and changes something, has an Origin.

    Raises:
        HttpRefusal: 403.
    """
    headers = request.headers
    has_session = b"cookie" in headers or PAGE_KEY in headers
    is_change = request.scope.get("method", "GET") not in SAFE
    if has_session and is_change and b"origin" not in headers:
        raise HttpRefusal(403, "a request with a cookie or a page key must have an Origin header")


class PageGuard:
    """The checks of every request to the pages.

    Args:
        hosts: Allowed values of `Host`; see `Guard`.
        public_url: The URL of the pages in browsers; "" if it is the URL at which they are served.
    """

    def __init__(self, hosts: Sequence[str] | None = None, public_url: str = "") -> None:
        self._origin = ""
        if public_url:
            parts = urlsplit(public_url)
            self._origin = f"{parts.scheme}://{parts.netloc}".lower()
        self._guard = Guard(hosts, [self._origin] if self._origin else [], ())

    def check(self, request: HttpRequest) -> None:
        """Check a request completely.

        Raises:
            HttpRefusal: 403, 415, or 400 if a header is repeated.
        """
        self.check_origin(request)
        self.check_content(request)

    def check_content(self, request: HttpRequest) -> None:
        """Check the body, once the request's path is known.

        Raises:
            HttpRefusal: 415: the body is not JSON.
        """
        if request.scope.get("method", "GET") in _WITH_BODY:
            request.check_media()

    def check_origin(self, request: HttpRequest) -> None:
        """Check where a request comes from; this is enough before an upgrade to a WebSocket.

        Raises:
            HttpRefusal: 403, or 400 if a header is repeated.
        """
        self._guard.check(request)
        check_has_origin(request)
        origin = request.header(b"origin")
        is_stated = origin is not None and origin.lower() == stated_origin(request.scope)
        host = request.header(b"host")
        if origin is not None and not is_stated and not self._is_ours(origin.lower(), host):
            raise HttpRefusal(403, "this Origin differs from the origin of these pages")
        site = request.header(b"sec-fetch-site")
        is_get = request.scope.get("method", "GET") in SAFE
        if site not in (None, "same-origin") and not (site == "none" and is_get):
            raise HttpRefusal(403, "requests from other sites are refused")

    def _is_ours(self, origin: str, host: str | None) -> bool:
        if self._origin and origin == self._origin:
            return True
        scheme, _, place = origin.partition("://")
        if scheme not in ("http", "https") or place != (host or "").lower():
            return False
        return not self._origin or is_loopback(urlsplit(origin).hostname or "")
