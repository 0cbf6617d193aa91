from __future__ import annotations

import asyncio

import msgspec
import pytest

from interlock.layers import refusals
from interlock.layers.refusals import Refusals
from interlock.store import AuditRecord


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[AuditRecord]:
    monkeypatch.setattr(refusals, "INTERVAL", 0.01)
    return []


def refused(tool: str = "", user: str = "ada") -> AuditRecord:
    return AuditRecord("refused", user=user, tool=tool, reason="policy")


def count_of(record: AuditRecord) -> int:
    count: int = msgspec.json.decode(record.body).get("count", 1)
    return count


async def test_first_refusal_is_written_at_once_and_repetitions_as_one_count(written):
    kept = Refusals(written.append)
    for _ in range(100):
        kept.add(refused(), "mcp")
    assert [count_of(each) for each in written] == [1]

    kept.flush()
    assert [count_of(each) for each in written] == [1, 99]


async def test_refusal_is_written_at_once_again_after_a_quiet_interval(written):
    kept = Refusals(written.append)
    kept.add(refused(), "mcp")
    await asyncio.sleep(2 * refusals.INTERVAL)
    kept.add(refused(), "mcp")

    assert [count_of(each) for each in written] == [1, 1]


async def test_refusals_for_invented_tool_names_are_counted_together(written):
    kept = Refusals(written.append)
    for number in range(10):
        kept.add(refused(tool=f"made_up_{number}"), "mcp")
        kept.add(refused(tool=f"real_{number}"), "mcp", is_tool=True)

    assert [each.tool for each in written] == ["made_up_0", *(f"real_{n}" for n in range(10))]


async def test_refusals_beyond_the_limit_are_counted_without_their_callers(written, monkeypatch):
    monkeypatch.setattr(refusals, "MAX_REFUSALS", 2)
    kept = Refusals(written.append)
    for number in range(10):
        kept.add(refused(user=f"user-{number}"), "mcp")
    kept.flush()

    assert [each.user for each in written] == ["user-0", "user-1", "", ""]
    assert count_of(written[-1]) == 7
