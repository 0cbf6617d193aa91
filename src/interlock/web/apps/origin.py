"""Origins of apps that declare a `domain`: each server has an origin of its own.

An app without a declared domain has an opaque origin. An app with a domain needs a real origin,
because a service recognizes it by its origin, or it stores something in the browser. The operator
points a wildcard name such as `*.apps.example.org` at this program.
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
        """Return the origins after checking them.

        Raises:
            ConfigError: The pattern is not valid, or the pages have no public origin.
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
