"""Decides whether the spans of a trace are recorded, before any span is made.

Specification: https://opentelemetry.io/docs/specs/otel/trace/sdk/#sampling
"""

from __future__ import annotations

from collections.abc import Callable

from interlock.errors import ConfigError

# Given the parent's decision (None without a parent) and the trace's id.
Sampler = Callable[[bool | None, int], bool]
DEFAULT = "parentbased_always_on"

_ROOTS = ("always_on", "always_off", "traceidratio")
_BITS = 64  # of a trace id, the lowest, that a ratio is compared with


def is_known(name: str) -> bool:
    """Return whether a name of OTEL_TRACES_SAMPLER is one of the samplers in this module."""
    return name.removeprefix("parentbased_") in _ROOTS


def sampler(name: str, argument: str) -> Sampler:
    """Return the sampler with a name of OTEL_TRACES_SAMPLER.

    Args:
        name: A name for which `is_known` is true; "" for the default.
        argument: OTEL_TRACES_SAMPLER_ARG, the ratio of sampled traces; "" for 1.

    Raises:
        ConfigError: The argument is not a ratio.
    """
    name = name or DEFAULT
    root = name.removeprefix("parentbased_")
    ratio = {"always_on": 1.0, "always_off": 0.0}.get(root)
    bound = round((_ratio(argument) if ratio is None else ratio) * (1 << _BITS))
    mask = (1 << _BITS) - 1
    if root != name:
        return lambda parent, trace: (trace & mask) < bound if parent is None else parent
    return lambda _, trace: (trace & mask) < bound


def _ratio(argument: str) -> float:
    try:
        ratio = float(argument or 1.0)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(
            f"OTEL_TRACES_SAMPLER_ARG {argument!r} is not a ratio; use a number from 0 to 1"
        )
    return ratio
