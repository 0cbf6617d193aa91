"""The kind of network that an IP address belongs to.

An address is "public" only if it certainly is public. If an address embeds another address, the
embedded address decides. Ranges that no server uses are "special". Sources: the IANA registries of
special-purpose addresses (RFC 6890), and cloud providers' documentation of metadata addresses,
which return credentials without authentication.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal

Kind = Literal["public", "private", "loopback", "special"]

# The first network in the list that contains the address decides.
_IPV4: list[tuple[str, Kind]] = [
    ("127.0.0.0/8", "loopback"),
    ("100.100.100.200/32", "special"),  # cloud metadata
    ("168.63.129.16/32", "special"),  # cloud metadata
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "private"),  # carrier-grade NAT, and overlay networks
    ("172.16.0.0/12", "private"),
    ("192.168.0.0/16", "private"),
    ("0.0.0.0/8", "special"),  # this host itself
    ("169.254.0.0/16", "special"),  # link-local, with the metadata address of most clouds
    ("192.0.0.0/24", "special"),  # protocol assignments
    ("192.0.2.0/24", "special"),  # documentation
    ("192.88.99.0/24", "special"),  # 6to4 relays
    ("198.18.0.0/15", "special"),  # benchmarks
    ("198.51.100.0/24", "special"),  # documentation
    ("203.0.113.0/24", "special"),  # documentation
    ("224.0.0.0/4", "special"),  # multicast
    ("240.0.0.0/4", "special"),  # reserved, and broadcast
    ("0.0.0.0/0", "public"),
]
_IPV6: list[tuple[str, Kind]] = [
    ("::1/128", "loopback"),
    ("fd00:ec2::254/128", "special"),  # cloud metadata
    ("fd20:ce::254/128", "special"),  # cloud metadata
    ("fc00::/7", "private"),  # unique local
    ("2001::/23", "special"),  # protocol assignments: Teredo, benchmarks, ORCHID
    ("2001:db8::/32", "special"),  # documentation
    ("2002::/16", "special"),  # 6to4
    ("3fff::/20", "special"),  # documentation
    ("2000::/3", "public"),
    # All other ranges: link-local, site-local, multicast, unspecified, 64:ff9b:1::/48, unassigned.
    ("::/0", "special"),
]
_NETWORKS = {
    4: [(ip_network(network), kind) for network, kind in _IPV4],
    6: [(ip_network(network), kind) for network, kind in _IPV6],
}
_MAPPED = ip_network("::ffff:0:0/96")
_NAT64 = ip_network("64:ff9b::/96")

# Resolvers read texts like these as IPv4 addresses: 2130706433, 127.1, 0177.0.0.1, 0x7f000001.
_NUMERIC = re.compile(r"(?:.*\.)?(?:[0-9]+|0[xX][0-9a-fA-F]*)\.?")


def kind(address: str) -> Kind:
    """Return the kind of network to which an IP address belongs.

    Args:
        address: The address in standard notation; a zone, as in "fe80::1%eth0", is ignored.

    Raises:
        ValueError: The text is not an IP address in standard notation.
    """
    ip = ip_address(address)
    if isinstance(ip, IPv6Address) and (ip in _MAPPED or ip in _NAT64):
        ip = IPv4Address(int(ip) & 0xFFFFFFFF)
    return next(kind for network, kind in _NETWORKS[ip.version] if ip in network)


def literal(host: str) -> str | None:
    """Return the host of a URL if it is an IP address; None if it is a name.

    Raises:
        ValueError: The host is an IP address, but not in standard notation.
    """
    try:
        return str(ip_address(host))
    except ValueError:
        if ":" in host or _NUMERIC.fullmatch(host):
            raise
    return None


def written_kind(host: str) -> Kind:
    """Return the kind of network of a URL's host as far as its text shows it.

    Names are "public", except names of this machine. An IP address that is not in standard notation
    is "special".
    """
    try:
        address = literal(host)
    except ValueError:
        return "special"
    if address is not None:
        return kind(address)
    name = host.rstrip(".")
    return "loopback" if name == "localhost" or name.endswith(".localhost") else "public"
