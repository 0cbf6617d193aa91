"""A gateway with an OAuth front door, and the browser of its user, for the conformance suite."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

START_LIMIT = 30.0  # seconds until the gateway takes requests
ANSWER_LIMIT = 60.0  # seconds until the suite asks the user
_ASKED = re.compile(r"^(http://127\.0\.0\.1:\d+)/authorize\?(\S+)$", re.MULTILINE)


class Door(NamedTuple):
    """A gateway that is being served: its origin, and a key with which its user signs in."""

    origin: str
    key: str


@contextmanager
def served_door(folder: Path) -> Iterator[Door]:
    """Serve a gateway without servers, whose users are clients of the suite."""
    folder.mkdir(parents=True, exist_ok=True)
    origin = f"http://127.0.0.1:{free_port()}"
    file, log = folder / "mcp.json", folder / "gateway.log"
    gateway = {
        "listen": origin.removeprefix("http://"),
        "publicUrl": f"{origin}/mcp",
        "database": str(folder / "gateway.db"),
        "auth": {"oauth": {}},
    }
    file.write_text(json.dumps({"mcpServers": {}, "gateway": gateway}))
    command = [sys.executable, "-m", "interlock"]
    env = {**os.environ, "HOME": str(folder)}
    created = [*command, "keys", "create", "suite", "--scope", "mcp:*", "--config", str(file)]
    key = subprocess.run(created, env=env, capture_output=True, text=True, check=True).stdout
    serve = [*command, "serve", "--config", str(file)]
    with (
        log.open("wb") as output,
        subprocess.Popen(serve, env=env, stdin=-3, stdout=output, stderr=output) as process,
    ):
        try:
            deadline = monotonic() + START_LIMIT
            while "serving at" not in log.read_text(encoding="utf-8"):
                if monotonic() > deadline or process.poll() is not None:
                    sys.exit(f"error: the gateway does not serve:\n{log.read_text()}")
                sleep(0.05)
            yield Door(origin, key.strip())
        finally:
            process.terminate()
            process.wait(10)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def registered(door: Door, redirect: str) -> str:
    """Register a client; return its id."""
    metadata = {"redirect_uris": [redirect], "token_endpoint_auth_method": "none"}
    return str(post(f"{door.origin}/register", metadata)[0]["client_id"])


def allow(door: Door, log: Path, suite: subprocess.Popen[bytes]) -> None:
    """Sign in at the address that the suite prints, and allow what it asks for."""
    deadline = monotonic() + ANSWER_LIMIT
    while (asked := _ASKED.search(log.read_text(encoding="utf-8"))) is None:
        if monotonic() > deadline or suite.poll() is not None:
            return
        sleep(0.05)
    query, origin = asked[2], {"Origin": door.origin}
    session, headers = post(f"{door.origin}/api/login", {"key": door.key}, origin)
    cookie = headers["set-cookie"].partition(";")[0]
    own = {"Cookie": cookie, "X-Interlock-Key": session["pageKey"], **origin}
    shown, _ = post(f"{door.origin}/api/authorize", {"query": query}, own)
    decided = {"query": query, "seen": shown["seen"], "allow": True}
    answer, _ = post(f"{door.origin}/api/authorize/decide", decided, own)
    with urlopen(answer["location"]):
        pass


def post(url: str, body: object, headers: dict[str, str] | None = None) -> tuple[Any, Any]:
    """Send JSON; return the answer and its headers."""
    sent = {"Content-Type": "application/json", **(headers or {})}
    with urlopen(Request(url, json.dumps(body).encode(), sent)) as reply:
        return json.load(reply), reply.headers
