"""Histograms of durations, which are cheap to fill and are read only by the metrics."""

from __future__ import annotations

from bisect import bisect_left
from operator import add

DATABASE_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)


class Histogram:
    """A histogram of durations in seconds.

    Args:
        bounds: The buckets' upper bounds in seconds, ascending.

    Attributes:
        bounds: The argument `bounds`.
        counts: The number of values in each bucket; the last bucket has no upper bound.
        sum: The sum of all values.
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration. The path of a call does the same without calling this method."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def add_to(self, counts: list[int]) -> None:
        """Add the number of values in each bucket to `counts`."""
        counts[:] = map(add, counts, self.counts)
