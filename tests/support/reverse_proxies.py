"""The commands that run nginx, HAProxy and Caddy with a configuration, in the foreground."""

from __future__ import annotations

import socket
from pathlib import Path


def nginx(folder: Path, text: str) -> list[str]:
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{each}_temp_path {folder}/{each};" for each in kinds)
    top = f"pid {folder}/pid; events {{}} http {{ access_log off; {paths}"
    file = folder / "nginx.conf"
    file.write_text(f"daemon off; master_process off; {top}\n{text}\n}}\n")
    return ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(file)]


def haproxy(folder: Path, text: str) -> list[str]:
    file = folder / "haproxy.cfg"
    file.write_text(text)
    return ["haproxy", "-db", "-f", str(file)]


def caddy(folder: Path, text: str) -> list[str]:
    file = folder / "Caddyfile"
    file.write_text("{\n\tadmin off\n\tauto_https off\n}\n" + text)
    return ["caddy", "run", "--adapter", "caddyfile", "--config", str(file)]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
