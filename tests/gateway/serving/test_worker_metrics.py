"""The metrics page of a gateway with several workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from interlock.gateway.serving.worker import Worker
from interlock.gateway.serving.worker_metrics import WorkerMetrics
from interlock.histogram import Histogram
from interlock.layers.exposition import Family, by_label, family, text_of
from tests.support.clock import ClockLoop


def metrics(folder: str, index: int, *, hangs: bool = False) -> WorkerMetrics:
    async def read() -> Sequence[Family]:
        if hangs:
            await asyncio.Event().wait()
        seconds = Histogram((1,))
        seconds.note(0.5)
        return [
            family("interlock_ready", "Ready.", {(): 1.0}),
            family("calls_total", "Calls.", by_label("server", {"s": index})),
            family("seconds", "Time.", {(): seconds}),
        ]

    return WorkerMetrics(Worker(index, 0, "", 0, folder, 3), read)


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder with a short path, as the path of a socket has at most 108 characters."""
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, "1.sock").touch()  # of a worker that was killed
        yield folder


def test_each_sample_states_its_worker_and_a_worker_without_answer_is_not_ready(folder: str):
    async def read() -> str:
        own, other = metrics(folder, 0), metrics(folder, 1)
        async with own.serving(), other.serving(), metrics(folder, 2, hangs=True).serving():
            with loop.clock.flying():
                page = text_of(await own.families())
                assert text_of(await other.families()) == page
        return page

    loop = ClockLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        page = runner.run(read())
    assert page.splitlines() == [
        "# HELP interlock_ready Ready.",
        "# TYPE interlock_ready gauge",
        'interlock_ready{worker="0"} 1',
        'interlock_ready{worker="1"} 1',
        'interlock_ready{worker="2"} 0',
        "# HELP calls_total Calls.",
        "# TYPE calls_total counter",
        'calls_total{server="s",worker="0"} 0',
        'calls_total{server="s",worker="1"} 1',
        "# HELP seconds Time.",
        "# TYPE seconds histogram",
        *(
            line
            for worker in "01"
            for line in (
                f'seconds_bucket{{worker="{worker}",le="1"}} 1',
                f'seconds_bucket{{worker="{worker}",le="+Inf"}} 1',
                f'seconds_sum{{worker="{worker}"}} 0.500000',
                f'seconds_count{{worker="{worker}"}} 1',
            )
        ),
    ]
