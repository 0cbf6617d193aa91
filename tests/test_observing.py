"""Trace contexts, by W3C Trace Context level 2."""

from __future__ import annotations

from interlock.observing import TraceContext, header_context, trace_context
from tests.support.rows import each_row

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


MALFORMED = [
    None, 7, "", "x", PARENT[:-1], f"{PARENT}0", f"{PARENT}-x", PARENT.upper(), f" {PARENT}",
    f"{PARENT}\n", f"ff-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01",
    f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE[:-1]}-{SPAN}-01", f"00-{TRACE}-{SPAN}-0g",
    f"0-{TRACE}-{SPAN}-01", PARENT.replace("-", "_"), f"01-{TRACE}-{SPAN}-01.{'x' * 9}",
    f"01-{TRACE}-{SPAN}-01-{'x' * 600}", PARENT.replace("4", "\u0664"),
]  # fmt: skip


@each_row("value", MALFORMED)
def test_a_malformed_traceparent_is_ignored(value: object):
    assert trace_context(value) is None
    if isinstance(value, str) and value.isascii():
        assert header_context(value.encode()) is None


@each_row("value", [PARENT, f"00-{TRACE}-{SPAN}-03", f"01-{TRACE}-{SPAN}-00-later"])
def test_a_valid_traceparent_of_any_version_is_a_context(value: str):
    assert trace_context(value) == header_context(value.encode()) == TraceContext(value)


@each_row(
    ("state", "kept"),
    [
        ("vendor=a,other=b", "vendor=a,other=b"),
        ("v=" + "x" * 511, ""),
        ("v=a\r\nx: y", ""),
        ("nothing", ""),
        (7, ""),
    ],
)
def test_a_tracestate_that_is_long_or_malformed_is_dropped_alone(state: object, kept: str):
    assert trace_context(PARENT, state) == TraceContext(PARENT, kept)
