"""Which addresses count as public."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis.strategies import integers, sampled_from

from interlock.oauth.addresses import kind, literal, written_kind
from tests.support.rows import each_row

KINDS = {
    # IPv4
    "8.8.8.8": "public",
    "1.1.1.1": "public",
    "9.255.255.255": "public",
    "10.0.0.0": "private",
    "10.255.255.255": "private",
    "11.0.0.0": "public",
    "100.63.255.255": "public",
    "100.64.0.0": "private",
    "100.127.255.255": "private",
    "100.128.0.0": "public",
    "126.255.255.255": "public",
    "127.0.0.1": "loopback",
    "127.255.255.255": "loopback",
    "128.0.0.0": "public",
    "169.253.255.255": "public",
    "169.254.0.0": "special",
    "169.254.169.254": "special",
    "169.255.0.0": "public",
    "172.15.255.255": "public",
    "172.16.0.0": "private",
    "172.31.255.255": "private",
    "172.32.0.0": "public",
    "192.168.0.0": "private",
    "192.168.255.255": "private",
    "192.169.0.0": "public",
    "0.0.0.0": "special",
    "0.255.255.255": "special",
    "192.0.0.192": "special",
    "192.0.2.1": "special",
    "192.88.99.1": "special",
    "198.18.0.1": "special",
    "198.19.255.255": "special",
    "198.51.100.7": "special",
    "203.0.113.7": "special",
    "223.255.255.255": "public",
    "224.0.0.1": "special",
    "239.255.255.250": "special",
    "240.0.0.1": "special",
    "255.255.255.255": "special",
    # Cloud metadata
    "100.100.100.200": "special",
    "168.63.129.16": "special",
    "fd00:ec2::254": "special",
    "fd20:ce::254": "special",
    # IPv6
    "2606:4700:4700::1111": "public",
    "2a00:1450:4001::1": "public",
    "::1": "loopback",
    "::": "special",
    "::127.0.0.1": "special",
    "::8.8.8.8": "special",
    "fc00::1": "private",
    "fdff:ffff::1": "private",
    "fe80::1": "special",
    "fe80::1%eth0": "special",
    "fec0::1": "special",
    "feff::1": "special",
    "ff02::1": "special",
    "100::1": "special",
    "2001::1": "special",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2": "special",
    "2001:2::1": "special",
    "2001:10::1": "special",
    "2001:20::1": "special",
    "2001:200::1": "public",
    "2001:db8::1": "special",
    "2002:7f00:1::": "special",
    "2002:808:808::1": "special",
    "3fff::1": "special",
    "4000::1": "special",
    "5f00::1": "special",
    # IPv4 in IPv6
    "::ffff:8.8.8.8": "public",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:10.0.0.1": "private",
    "::ffff:169.254.169.254": "special",
    "::ffff:a9fe:a9fe": "special",
    "::ffff:0:127.0.0.1": "special",
    "64:ff9b::8.8.8.8": "public",
    "64:ff9b::127.0.0.1": "loopback",
    "64:ff9b::10.0.0.1": "private",
    "64:ff9b::a9fe:a9fe": "special",
    "64:ff9b:1::8.8.8.8": "special",
    "64:ff9b:1:ffff::a9fe:a9fe": "special",
}


def test_ip_address_has_the_kind_of_its_network():
    assert {address: kind(address) for address in KINDS} == KINDS


@each_row(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("localhost", None),
        ("as.example", None),
        ("1password.com", None),
        ("127.0.0.1.as.example", None),
        ("0x7f.example", None),
        ("", None),
    ],
)
def test_literal_returns_ip_addresses_and_none_for_names(host: str, address: str | None):
    assert literal(host) == address


@each_row(
    "host",
    [
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0X7F000001",
        "0x",
        "127.1",
        "127.0.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f.1",
        "127.0.0.01",
        "127.0.0.1.",
        "127.0.0.256",
        "1.2.3.4.5",
        "as.example.1",
        "fe80:::1",
    ],
)
def test_literal_of_an_address_in_an_unusual_spelling_raises(host: str):
    with pytest.raises(ValueError):
        literal(host)


@given(integers(0, 2**32 - 1))
def test_a_public_ipv4_address_is_global_in_the_standard_library(number: int):
    address = IPv4Address(number)

    if kind(str(address)) == "public":
        assert address.is_global
        assert not address.is_multicast


NETWORKS = [
    "::", "::ffff:0:0", "64:ff9b::", "64:ff9b:1::", "100::", "2000::", "2001::", "2001:db8::",
    "2002::", "3ffe::", "fc00::", "fe80::", "fec0::", "ff00::",
]  # fmt: skip


@given(sampled_from(NETWORKS), integers(0, 2**112 - 1), integers(0, 112))
def test_a_public_ipv6_address_is_global_in_the_standard_library(
    network: str, number: int, bits: int
):
    address = IPv6Address(int(IPv6Address(network)) | number >> bits)
    hidden = IPv4Address(int(address) & 0xFFFFFFFF)

    if kind(str(address)) == "public":
        nat64 = int(address) >> 32 == int(IPv6Address("64:ff9b::")) >> 32
        public = hidden if nat64 or address.ipv4_mapped else address
        assert public.is_global
        assert not public.is_multicast


@each_row(
    ("host", "expected"),
    [
        ("as.example", "public"),
        ("localhost.example", "public"),
        ("", "public"),
        ("localhost.", "loopback"),
        ("a.localhost", "loopback"),
        ("127.0.0.2", "loopback"),
        ("10.0.0.1", "private"),
        ("2130706433", "special"),
        ("169.254.169.254", "special"),
    ],
)
def test_written_kind_classifies_a_host_without_a_lookup(host: str, expected: str):
    assert written_kind(host) == expected
