"""Limits on requests of callers who have not authenticated."""

from __future__ import annotations

from ipaddress import IPv6Address

from interlock.config.gateway import Rate
from interlock.layers.limits import Buckets, spend
from interlock.text.networks import address

_SITE = ~((1 << 64) - 1)  # one caller may have a whole /64 of IPv6


class SharedLimit:
    """A rate for all callers together, of which each address gets at most half.

    So one address cannot lock out the others. Half is enough for a company or a hosted client that
    has one address for many people.

    Args:
        rate: Requests a second.
    """

    def __init__(self, rate: int) -> None:
        self._all = Buckets(Rate(rate, 1), None, "", "")
        self._each = Buckets(Rate(max(1, rate // 2), 1), None, "", "")

    def spend(self, caller: str, now: float) -> bool:
        """Count a request and return True, or return False if it is too much.

        Args:
            caller: The IP address of the caller; all callers without one share a half.
            now: The time by a monotonic clock, in seconds.
        """
        found = address(caller)
        key = int(found) & _SITE if isinstance(found, IPv6Address) else caller
        return spend([(self._each, key), (self._all, "")], now)
