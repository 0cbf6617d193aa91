"""IP addresses and networks, as they are written in options and in the headers of proxies."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_interface

IPAddress = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network


def network(text: str) -> Network:
    """Return the network that a text names; a single address is a network of one.

    Raises:
        ValueError: The text names no network. The error says what to write instead.
    """
    try:
        found = ip_interface(text.strip())
    except ValueError:
        raise ValueError("must be an address or a network, such as 10.0.0.0/8 or ::1") from None
    if "/" in text and found.ip != found.network.network_address:
        raise ValueError(f"is an address inside a network: write {found.ip} or {found.network}")
    return found.network


def address(text: str) -> IPAddress | None:
    """Return an IP address without its port, brackets and zone; None if the text has none.

    An IPv4 address inside IPv6 (`::ffff:192.0.2.1`) is returned as IPv4.
    """
    host = text.strip()
    if host.startswith("["):
        host = host[1:].partition("]")[0]
    elif host.count(":") == 1:
        host = host.partition(":")[0]
    try:
        found = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    mapped = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return mapped or found
