"""Trusted reverse proxies: their headers state who sent a request, and how.

1. Only a request that arrives from a trusted address is changed. Anybody can send these headers, so
   in all other requests they are ignored.
2. Each proxy appends the address that it received the request from. So the client is the last
   address in the list that is not a trusted proxy; everything before it could be invented.
3. `Forwarded` and `X-Forwarded-For` must name the same client if a request has both. A proxy that
   sets one of them usually passes on the other, which the client may have invented.
4. An invalid value is ignored, like a missing one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from interlock.errors import ConfigError
from interlock.server.http.responses import Header, Scope
from interlock.text.networks import Network, address, network
from interlock.text.urls import is_loopback

# Keys of an ASGI scope for what trusted proxies state: the prefix that they have removed from the
# path, and the host that the client used; "" for none. They are missing in other requests.
PREFIX, HOST = "interlock.prefix", "interlock.host"
# The address of the server, instead of loopback: `Host` is checked as on loopback, as a page could
# connect without the proxy. Pages of loopback are not trusted, as they are on other machines.
BEHIND_PROXY = "behind a proxy"

MAX_PROXIES = 32  # proxies between the server and a client; a client could invent thousands

_PREFIX = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~!$&'()*+;=:@%-]+)*/?")
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_PAIR = re.compile(r'\s*([a-z]+)=("(?:[^"\\]|\\.)*"|[^\s;,"]*)\s*(;|,|$)', re.IGNORECASE)
_log = logging.getLogger("interlock.server.http")

Element = dict[str, str]  # what one proxy states: "for", "proto" and "host"


def stated_origin(scope: Scope) -> str:
    """Return the origin that the client used, as a trusted proxy states it; "" if none does."""
    host = scope.get(HOST)
    return f"{scope['scheme']}://{host}".lower() if host else ""


class Proxies:
    """The addresses of trusted proxies.

    Args:
        names: The addresses and networks, such as "10.0.0.0/8".

    Raises:
        ConfigError: A name is not an address or a network.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._networks: list[Network] = []
        for name in names:
            try:
                self._networks.append(network(name))
            except ValueError as error:
                raise ConfigError(f"proxy {name!r} {error}") from None
        self._has_warned = False

    def trusts(self, peer: str) -> bool:
        found = address(peer)
        return found is not None and any(found in each for each in self._networks)

    def apply(self, scope: Scope) -> None:
        """Replace client and scheme in the scope of a proxy's request; add host and prefix."""
        headers: list[Header] = scope["headers"]
        said = _values(headers)
        peer: str = scope["client"][0]
        chain, elements = said.get("x-forwarded-for", []), _elements(said.get("forwarded", []))
        client, place = self._client(peer, chain)
        if elements:
            named, index = self._client(peer, [each.get("for", "") for each in elements])
            if not chain:
                client, place = named, index
            elif named != client:
                self._warn(peer)
                client = peer
        if chain or not elements:
            proto = _at(said.get("x-forwarded-proto", []), place, len(chain))
            host = _at(said.get("x-forwarded-host", []), place, len(chain))
        else:
            proto, host = elements[place].get("proto", ""), elements[place].get("host", "")
        scope["client"] = client, 0
        if is_loopback(scope["server"][0]):
            scope["server"] = BEHIND_PROXY, scope["server"][1]
        if proto.lower() in ("http", "https"):
            scope["scheme"] = proto.lower()
        scope[HOST] = host if _HOST.fullmatch(host) else ""
        prefix = "".join(each.rstrip("/") for each in said.get("x-forwarded-prefix", []))
        scope[PREFIX] = prefix if _PREFIX.fullmatch(prefix) else ""

    def _client(self, peer: str, chain: Sequence[str]) -> tuple[str, int]:
        """Return the address of the client, and the place of the proxy's statement about it."""
        client, place = peer, len(chain) - 1
        for index in reversed(range(max(0, len(chain) - MAX_PROXIES), len(chain))):
            found = address(chain[index])
            if found is None:  # "unknown", or a name that hides the address
                break
            client, place = str(found), index
            if not self.trusts(client):
                break
        return client, place

    def _warn(self, peer: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the proxy %s passes on Forwarded and X-Forwarded-For that name different clients; "
                "let it remove the one that it does not set",
                peer,
            )


def _values(headers: Iterable[Header]) -> dict[str, list[str]]:
    """Return the values of each forwarding header, in the order in which proxies added them."""
    found: dict[str, list[str]] = {}
    for name, value in headers:
        if name.startswith(b"x-forwarded-"):
            parts = [each.strip() for each in value.decode("latin-1").split(",")]
            found.setdefault(name.decode("latin-1"), []).extend(each for each in parts if each)
        elif name == b"forwarded":
            found.setdefault("forwarded", []).append(value.decode("latin-1"))
    return found


def _elements(values: Iterable[str]) -> list[Element]:
    """Return the elements of the header `Forwarded` (RFC 7239); [] if it is malformed."""
    text, position = ",".join(values), 0
    elements: list[Element] = [{}]
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            return []
        name, value, end = match.groups()
        if value.startswith('"'):
            value = re.sub(r"\\(.)", r"\1", value[1:-1])
        elements[-1][name.lower()] = value
        if end == ",":
            elements.append({})
        position = match.end()
    return [each for each in elements if each]


def _at(values: Sequence[str], place: int, length: int) -> str:
    """Return the value that belongs to a place in a list of proxies, or else the nearest proxy's.

    Most proxies replace the value instead of adding theirs, so there may be fewer values.
    """
    if not values:
        return ""
    return values[place] if len(values) == length else values[-1]
