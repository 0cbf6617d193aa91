"""Addresses and networks as people and proxies write them."""

from __future__ import annotations

import pytest

from interlock.text.networks import address, network
from tests.support.rows import each_row


@each_row(
    ("text", "found"),
    [
        ("10.0.0.0/8", "10.0.0.0/8"),
        (" 192.0.2.7 ", "192.0.2.7/32"),
        ("::1", "::1/128"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.1/255.0.0.0", None),
        ("10.0.0.1/8", None),
        ("10.0.0.0/33", None),
        ("example.com", None),
        ("*", None),
        ("", None),
    ],
)
def test_network_is_read_if_it_is_unambiguous(text: str, found: str | None):
    if found is None:
        with pytest.raises(ValueError, match=r"must be|is an address inside"):
            network(text)
    else:
        assert str(network(text)) == found


@each_row(
    ("text", "found"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("192.0.2.7:4711", "192.0.2.7"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("2001:DB8::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("unknown", None),
        ("192.0.2.300", None),
        ("", None),
    ],
)
def test_address_is_read_without_port_brackets_and_zone(text: str, found: str | None):
    got = address(text)
    assert (None if got is None else str(got)) == found
