"""Figures and charts over the API, from the counts of calls."""

from __future__ import annotations

import pytest

from tests.gateway.admin.support import Operator
from tests.gateway.admin.test_status import Broken
from tests.gateway.conftest import RunningGateway, offering


async def called(gateway: RunningGateway) -> None:
    """Make two calls that succeed, and one that is refused by a limit."""
    key = await gateway.key("anna", limits={"rate": "2/h"})
    for _ in range(3):
        await gateway.call("crm__x", key)
    await gateway.settle()


@pytest.mark.slow("fills a database")
async def test_series_counts_calls_by_outcome_and_by_tool(running):
    async with running({}, crm=offering("x")) as gateway:
        operator = await Operator.of(gateway)
        await called(gateway)
        gateway.assembly.services.trail.flush()
        await gateway.settle()
        by_outcome = await operator.get("/audit/series", "by=outcome&since=1h&buckets=6")
        by_tool = await operator.get("/audit/series", "by=tool&since=1h")

        counts = {each["name"]: sum(each["calls"]) for each in by_outcome["lines"]}
        assert counts == {"ran": 2, "limited": 1}
        assert len(by_outcome["total"]["calls"]) <= 6
        assert by_outcome["total"]["total"]["p95"] > 0
        assert "crm:x" in {each["name"] for each in by_tool["lines"]}
        for query in ("by=user", "buckets=241", "since=soon", "since=2026-01-02&until=2026-01-01"):
            refused = await operator.refused("GET", "/audit/series", query=query)
            assert refused == (400, "bad_request"), query


@pytest.mark.slow("fills a database")
async def test_overview_lists_failed_servers_and_expiring_keys(running):
    async with running({}, crm=offering("x"), notes=Broken()) as gateway:
        operator = await Operator.of(gateway)
        await gateway.key("berta", lifetime=3600.0)
        await called(gateway)
        found = await operator.get("/overview", "range=1h")

        assert found["figures"]["calls"] >= 2
        assert found["figures"]["ownP95"] > 0
        assert [each["name"] for each in found["needs"]["servers"]] == ["notes"]
        assert found["needs"]["approvals"] == found["needs"]["definitions"] == []
        assert [each["user"] for each in found["needs"]["keys"]] == ["user:berta"]
        assert sum(found["series"]["total"]["calls"]) == found["figures"]["calls"]
        assert await operator.refused("GET", "/overview", query="range=1y") == (400, "bad_request")
