"""Counters, gauges and histograms as text in Prometheus' format.

The event loop takes a snapshot (`Family`), and a thread makes the text of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, TypeAlias

from msgspec import Struct

from interlock.histogram import Histogram
from interlock.text.quoting import visible

COUNTER = "_total"  # the end of a counter's name
Labels = tuple[tuple[str, str], ...]
Distribution = tuple[Labels, tuple[float, ...], tuple[int, ...], float]

Samples: TypeAlias = Mapping[Any, float] | Mapping[Any, Histogram]  # by `Labels`
Gauge: TypeAlias = tuple[str, Samples]  # a help text, and the samples


class Family(Struct, frozen=True):
    """A snapshot of all samples with one name.

    Attributes:
        name: The metric's name; the name of a counter ends in "_total".
        help: A sentence about the metric.
        values: The labels and values of counters and gauges.
        histograms: The labels, upper bounds, counts and sums of histograms.
    """

    name: str
    help: str
    values: Sequence[tuple[Labels, float]] = ()
    histograms: Sequence[Distribution] = ()

    def plus(self, other: Family) -> Family:
        """Return this family with the samples of another one of the same name."""
        return Family(
            self.name,
            self.help,
            [*self.values, *other.values],
            [*self.histograms, *other.histograms],
        )


def family(name: str, help: str, samples: Samples) -> Family:
    """Return a snapshot of a metric's samples."""
    values: list[tuple[Labels, float]] = []
    histograms: list[Distribution] = []
    for labels, value in samples.items():
        if isinstance(value, Histogram):
            histograms.append((labels, value.bounds, tuple(value.counts), value.sum))
        else:
            values.append((labels, value))
    return Family(name, help, values, histograms)


def labelled(found: Family, name: str, value: str) -> Family:
    """Return a family whose samples have one more label."""
    label = (name, value)
    return Family(
        found.name,
        found.help,
        [((*labels, label), number) for labels, number in found.values],
        [((*labels, label), *rest) for labels, *rest in found.histograms],  # type: ignore[misc]
    )


def text_of(families: Iterable[Family]) -> str:
    """Return the families in Prometheus' text format, version 0.0.4."""
    lines: list[str] = []
    for each in families:
        lines += _lines(each)
    return "\n".join(lines) + "\n"


def by_label(label: str, values: Mapping[str, float]) -> Mapping[Labels, float]:
    """Return a sample for each value, with its key as the only label."""
    return {((label, key),): value for key, value in values.items()}


def one(value: float) -> Mapping[Labels, float]:
    """Return the sample of a metric without labels."""
    return {(): float(value)}


def _lines(found: Family) -> Iterator[str]:
    name, kind = found.name, "counter" if found.name.endswith(COUNTER) else "gauge"
    if found.histograms:
        kind = "histogram"
    yield f"# HELP {name} {found.help}"
    yield f"# TYPE {name} {kind}"
    for labels, value in found.values:
        text = _labels(labels)
        yield f"{name}{{{text}}} {value:.15g}" if text else f"{name} {value:.15g}"
    for labels, bounds, counts, seconds in found.histograms:
        text, total = _labels(labels), 0
        start = f"{name}_bucket{{{text}{',' if text else ''}le="
        for bound, count in zip(_shown(bounds), counts, strict=False):
            total += count
            yield f'{start}"{bound}"}} {total}'
        total += counts[-1]
        yield f'{start}"+Inf"}} {total}'
        end = f"{{{text}}}" if text else ""
        yield f"{name}_sum{end} {seconds:.6f}"
        yield f"{name}_count{end} {total}"


@cache
def _shown(bounds: tuple[float, ...]) -> list[str]:
    """Return bounds as texts. A bound of another worker was decoded, so 1 is 1.0."""
    return [f"{each:g}" for each in bounds]


def _labels(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in labels)


def _escaped(text: str) -> str:
    if not text.isprintable():  # names of servers' tools may have what controls a terminal
        text = "\n".join(map(visible, text.split("\n")))
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
