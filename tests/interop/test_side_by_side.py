"""Both halves of each section about coming from FastMCP answer the other one's client alike."""

from __future__ import annotations

import logging

import pytest

from tests.interop.side_by_side import Pair, compare, pairs
from tests.support.rows import each_row


@pytest.mark.slow("serves both halves over HTTP")
@each_row("pair", pairs(), ids=[each.section for each in pairs()])
async def test_both_halves_answer_alike(pair: Pair, caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.CRITICAL):
        assert await compare(pair) == []


@pytest.mark.slow("serves both halves over HTTP")
async def test_half_that_answers_differently_is_named_with_both_answers():
    pair = pairs()[0]
    changed = pair.ours._replace(text=pair.ours.text.replace("a + b", "a - b"))

    (line,) = await compare(pair._replace(ours=changed))

    assert "['call', 'add', {'a': 1}]" in line
    assert "FastMCP:   ([('text', 2)], 2)\n  interlock: ([('text', 0)], 0)" in line
