"""What traces cost a gateway: its processor time for a call, with telemetry off and on.

The gateway is that of the group `gateway`, in front of the same server. The time is that of all
threads of the gateway's process: it contains the trace that it reads and forwards and the export of
its spans, but neither what the caller, the server nor the collector spend. The collector is a
thread of this process, on the server's processor.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import getrandbits
from resource import RUSAGE_CHILDREN, getrusage
from secrets import token_hex
from time import perf_counter, process_time

from benchmarks.groups.gateway import READ, SERVER_CORE, Asker, Ours, beyond, only_on
from benchmarks.harness import ENVIRONMENT, US, Effort, Row, Sample, contest, server
from interlock import observing

TITLE = "Traces"
WIDTH = 32  # calls at once
ROUNDS = 20  # times as many, because the differences are small
TRACE = b'"traceparent":"00-%b-%b-01",'
OFF, AGAIN, TRACED, SOME, ALL = "off", "again", "traced", "some", "all"
AWAY = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
SHARE = 15  # percent
LIMITS = {AGAIN: 0.0, TRACED: 6e-6, SOME: 20e-6, ALL: 60e-6}
WHAT = {
    AGAIN: "telemetry off, measured again",
    TRACED: "telemetry off, the client sends a trace",
    SOME: "1 % sampled",
    ALL: "all sampled and exported",
}


def rows(effort: Effort) -> Iterator[Row]:
    yield Row("a place that would report, telemetry off", "s", contest({US: check(effort)}, 5))
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        file = Path(name) / "mcp.json"
        command, *arguments = server("bare")
        entry = {"command": command, "args": arguments}
        file.write_text(json.dumps({"mcpServers": {"up": entry}}))
        taken = contest({OFF: partial(run, file), ALL: partial(run, file, **AWAY)}, 10)
        added = {US: beyond(taken[OFF], taken[ALL])}
        yield Row("added by traces: a command, the collector is away", "s", added, {US: 0.02})
        stack.enter_context(only_on(SERVER_CORE))
        url = stack.enter_context(collecting())
        some = {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "0.01"}
        on = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
        askers = {}
        for way, variables in ((OFF, {}), (AGAIN, {}), (SOME, on | some), (ALL, on)):
            folder = Path(name) / way
            folder.mkdir()
            gateway = stack.enter_context(Ours(folder, READ, env=variables))
            askers[way] = Asker(gateway, "up__add", is_modern=True)
            askers[way].check()
            if way == OFF:
                askers[TRACED] = TracedAsker(gateway, "up__add", is_modern=True)
        samples: dict[str, Sample] = {
            way: partial(each.processor, WIDTH, effort.seconds) for way, each in askers.items()
        }
        taken = contest(samples, ROUNDS * effort.rounds)
    yield Row("processor time of a call, telemetry off", "s", {US: taken[OFF]})
    for way, limit in LIMITS.items():
        added = {US: beyond(taken[OFF], taken[way])}
        yield Row(f"added by traces: {WHAT[way]}", "s", added, {US: limit} if limit else {})
    share = [100 * more / base for base, more in zip(taken[OFF], added[US], strict=True)]
    yield Row("the same, of a call without traces", "%", {US: share}, {US: SHARE})


class TracedAsker(Asker):
    """Sends another trace with each call, so that no cache of the gateway can know it."""

    def request(self, params: bytes, name: bytes, id: int = 1) -> bytes:
        plain = super().request(params, name, id)
        head, _, body = plain.partition(b"\r\n\r\n")
        head = head[: head.rindex(b"Content-Length")]
        trace = TRACE % (token_hex(16).encode(), token_hex(8).encode())
        body = body.replace(b'"_meta":{', b'"_meta":{' + trace)
        return b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)

    def renewed(self, request: bytes) -> bytes:
        start = request.index(TRACE[:18]) + 18
        ids = b"%032x-%016x" % (getrandbits(128), getrandbits(64))
        return request[:start] + ids + request[start + len(ids) :]


def check(effort: Effort) -> Sample:
    """Return the processor seconds of one comparison with the observer."""

    def sample() -> float:
        count, ends, started = 0, perf_counter() + effort.seconds, process_time()
        while perf_counter() < ends:
            for _ in range(1_000):
                if observing.observer is not None:
                    raise RuntimeError("telemetry is on")
            count += 1_000
        return (process_time() - started) / count

    return sample


def run(file: Path, **variables: str) -> float:
    """Return the processor seconds of a command that calls one tool."""
    before = getrusage(RUSAGE_CHILDREN)
    program = str(Path(sys.executable).with_name("interlock"))
    call = [program, "call", "--config", str(file), "up:add", "a=1"]
    subprocess.run(call, env=ENVIRONMENT | variables, stdout=-3, stderr=-3, check=True)
    after = getrusage(RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@contextmanager
def collecting() -> Iterator[str]:
    """Run a collector that accepts everything."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(200)
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
