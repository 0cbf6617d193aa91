"""Tokens and a registration to store, and the files that hold them."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from keyring.backend import KeyringBackend

from interlock.oauth import MemoryTokenStore
from interlock.oauth.storage import Registration, Tokens

SERVER = "https://mcp.example/mcp"


ISSUER = "https://as.example"


TOKENS = Tokens(
    access_token="SECRET-access",
    refresh_token="SECRET-refresh",
    expires_at=1_800_000_000.5,
    received_at=1_799_996_400.0,
    scope="read write",
    issuer=ISSUER,
    resource="https://mcp.example/mcp",
    client_id="client",
    token_endpoint="https://as.example/token",
)


REGISTRATION = Registration(
    issuer=ISSUER,
    client_id="client",
    client_secret="SECRET-client",
    client_secret_expires_at=1_900_000_000.0,
    token_endpoint_auth_method="client_secret_basic",
    redirect_uris=("http://127.0.0.1:1234/callback",),
    scope="read",
)


def listed(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(folder.glob(pattern))


def opened(path: Path, mode: int) -> None:
    path.chmod(mode)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def only_file(folder: Path) -> Path:
    (path,) = listed(folder, "*.json")
    return path


class Safe(KeyringBackend):
    """A keyring in memory that can fail."""

    priority = 5

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.broken: Callable[[], None] | None = None

    def get_password(self, service: str, username: str) -> str | None:
        if self.broken:
            self.broken()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        if self.broken:
            self.broken()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


class Counting(MemoryTokenStore):
    """Counts its reads and writes."""

    reads = writes = 0

    async def _read(self, key: str) -> bytes | None:
        self.reads += 1
        return await super()._read(key)

    async def _write(self, key: str, content: bytes | None) -> None:
        self.writes += 1
        await super()._write(key, content)
