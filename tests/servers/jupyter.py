"""A Jupyter Server: prints its URL and ends with its stdin. Arguments: folder, token."""

from __future__ import annotations

import os
import socket
import sys
from threading import Thread

from jupyter_server.serverapp import ServerApp


def end() -> None:
    sys.stdin.read()
    os._exit(0)


folder, token = sys.argv[1:]
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
server = ServerApp()
server.initialize(
    [
        "--ip=127.0.0.1",
        f"--port={port}",
        "--no-browser",
        "--allow-root",
        f"--ServerApp.root_dir={folder}",
        f"--IdentityProvider.token={token}",
    ]
)
server.io_loop.add_callback(print, f"http://127.0.0.1:{port}", flush=True)
Thread(target=end, daemon=True).start()
server.start()
