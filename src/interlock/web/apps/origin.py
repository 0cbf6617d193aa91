"""Origins for apps that declare a `domain`: one origin for each server.

An app that declares no domain has an opaque origin. An app that declares a domain needs a real
origin, for example to store data in the browser, or because a web service allows requests by
origin. The operator points a wildcard DNS name such as `*.apps.example.org` at this program.
"""

from __future__ import annotations

import re
from hashlib import sha256

from msgspec import Struct

from interlock.errors import ConfigError

_ORIGIN = re.compile(
    r"(https://\*\.(?:[a-z0-9-]+\.)+[a-z0-9-]+|http://\*\.localhost)(:[0-9]{1,5})?"
)


class AppsOrigin(Struct, frozen=True):
    """The origins at which apps with a domain are served.

    Attributes:
        pattern: An origin whose first label is "*", such as "https://*.apps.example.org".
        page: The origin of the pages that show apps.
    """

    pattern: str
    page: str

    @staticmethod
    def of(pattern: str, page: str) -> AppsOrigin:
        """Check the pattern and the page's origin, and return the `AppsOrigin`.

        Raises:
            ConfigError: The pattern is not valid, or the page has no public origin.
        """
        if _ORIGIN.fullmatch(pattern) is None:
            raise ConfigError(
                f"gateway.chat.appsOrigin is not valid ({pattern!r}); "
                'set an origin with a wildcard, such as "https://*.apps.example.org"'
            )
        if not page:
            raise ConfigError("gateway.chat.appsOrigin needs gateway.publicUrl; set it")
        if page.partition("://")[2].endswith(pattern.partition("*")[2]):
            raise ConfigError(
                f"gateway.chat.appsOrigin ({pattern}) includes the pages at {page}; "
                "set another domain for apps"
            )
        return AppsOrigin(pattern, page)

    def of_server(self, server: str) -> str:
        return self.pattern.replace("*", sha256(server.encode()).hexdigest()[:20], 1)
