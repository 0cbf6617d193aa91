"""The HTTP client of models, beside the packages of the vendors; processor time of the client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.harness import PEERS, US, Effort, Row, contest

TITLE = "Models, processor time of the client"
TOKENS = 5_000
VENDORS = ("openai", "anthropic")


def rows(effort: Effort) -> Iterator[Row]:
    with Provider() as provider:
        for vendor in VENDORS:
            samples = {
                US: partial(provider.first_request, US, vendor),
                vendor: partial(provider.first_request, vendor, vendor),
            }
            taken = contest(samples, effort.rounds)
            yield Row(f"{vendor}: start of a program to its first request", "s", taken, {US: 0.4})
        chat = contest({US: provider.first_request_of_chat}, effort.rounds)
        yield Row("`interlock chat`: start to the first request", "s", chat, {US: 0.4})
        for vendor in VENDORS:
            samples = {
                US: partial(provider.token, US, vendor),
                vendor: partial(provider.token, vendor, vendor),
            }
            taken = contest(samples, effort.rounds)
            yield Row(f"{vendor}: a token of {TOKENS:,} in a row", "s", taken, {vendor: 3})


class Provider:
    """Both vendors' APIs on loopback. It notes the processor time of the client that asks."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._client: subprocess.Popen[str] | None = None
        provider = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                provider.note()
                self.rfile.read(int(self.headers["Content-Length"]))
                body = ANSWERS["anthropic" if self.path.endswith("/messages") else "openai"]
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Provider:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def url(self, vendor: str) -> str:
        root = f"http://127.0.0.1:{self._server.server_port}"
        return root if vendor == "anthropic" else f"{root}/v1"

    def note(self) -> None:
        if self._client is not None:
            fields = Path(f"/proc/{self._client.pid}/stat").read_text().rpartition(")")[2].split()
            self.asked.append((int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"))

    def first_request(self, client: str, vendor: str) -> float:
        self._run([sys.executable, str(PEERS / "model_client.py"), *self._words(client, vendor, 1)])
        return self.asked[0]

    def first_request_of_chat(self) -> float:
        model = f"openai:m@{self.url('openai')}"
        self._run([sys.executable, "-m", "interlock", "chat", "--model", model, "Hi"])
        return self.asked[0]

    def token(self, client: str, vendor: str) -> float:
        words = self._words(client, vendor, 3)
        return float(self._run([sys.executable, str(PEERS / "model_client.py"), *words]))

    def _words(self, client: str, vendor: str, answers: int) -> list[str]:
        return [client, vendor, self.url(vendor), str(answers)]

    def _run(self, command: list[str]) -> str:
        self.asked.clear()
        with TemporaryDirectory() as home:
            keys = {f"{vendor.upper()}_API_KEY": "k" for vendor in VENDORS}
            folders = {f"XDG_{each}_HOME": home for each in ("CONFIG", "DATA", "CACHE", "STATE")}
            env = {"PATH": os.environ["PATH"], "HOME": home, **folders, **keys}
            self._client = subprocess.Popen(
                command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
            )
            printed, _ = self._client.communicate()
        if self._client.returncode:
            raise SystemExit(f"{' '.join(command)} failed")
        return printed


def _chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    envelope = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return {**envelope, "choices": [choice], "usage": None}


def _openai() -> bytes:
    token = f"data: {json.dumps(_chunk({'content': 'word '}))}\n\n"
    return f"{token * TOKENS}data: {json.dumps(_chunk({}, 'stop'))}\n\ndata: [DONE]\n\n".encode()


def _anthropic() -> bytes:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    text = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "word "}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": text},
        *[{"type": "content_block_delta", "index": 0, "delta": delta}] * TOKENS,
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


ANSWERS = {"openai": _openai(), "anthropic": _anthropic()}
