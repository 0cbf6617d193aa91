"""`doctor --deployment`: each planted fault is found, and a deployment without faults has none."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.auth.gateway_key import GatewayKey
from interlock.config import load
from interlock.gateway.deployment import deployment, machine, stored
from interlock.gateway.deployment.check_result import CheckResult
from interlock.gateway.deployment.deployment import examine
from interlock.store.database.key_owner import open_owned
from interlock.store.keys import KeyStore
from tests.cli.conftest import ECHO
from tests.support.rows import each_row

USER = os.geteuid() or 65532
DAY = 86_400.0


class Deployment:
    """A SQLite file with a key of a caller, the gateway's key beside it, and a configuration."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, lifetime: float = 90 * DAY) -> None:
        self.folder = folder
        self.patch = patch
        self.environ: dict[str, str] = {}
        self.servers: dict[str, Any] = {}
        self.gateway: dict[str, Any] = {"database": str(folder / "interlock.db")}
        folder.chmod(0o700)
        self.key = folder / "gateway.key"
        asyncio.run(self._fill(lifetime))
        os.chown(self.key, USER, -1)
        patch.setattr(os, "geteuid", lambda: USER)
        patch.setattr(resource, "getrlimit", lambda _: (65_536, 65_536))

    async def _fill(self, lifetime: float) -> None:
        secret = GatewayKey.load(self.folder)
        database = await open_owned(self.gateway["database"], secret)
        await KeyStore(database).create("anna", lifetime=lifetime)
        await database.close()

    def examine(self) -> list[CheckResult]:
        file = self.folder / "mcp.json"
        file.write_text(json.dumps({"mcpServers": self.servers, "gateway": self.gateway}))
        return asyncio.run(examine(lambda: load(file), self.environ))


@pytest.fixture
def deploy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Deployment]:
    monkeypatch.delenv("INTERLOCK_KEY", raising=False)

    def make(**options: Any) -> Deployment:
        folder = tmp_path / str(len([*tmp_path.iterdir()]))
        folder.mkdir()
        return Deployment(folder, monkeypatch, **options)

    return make


@pytest.mark.slow("starts a server")
def test_deployment_without_faults_has_no_problem(deploy):
    healthy = deploy()
    healthy.servers = {"e": {"command": sys.executable, "args": ECHO}}
    healthy.gateway |= {
        "listen": "0.0.0.0:8080",
        "admin": {"listen": "127.0.0.1:8081"},
        "publicUrl": "https://tools.example.com/mcp",
        "hosts": ["tools.example.com"],
        "proxies": ["10.0.0.1"],
    }
    before = sorted(healthy.folder.iterdir())
    found = healthy.examine()

    assert [each for each in found if each.state != "ok"] == []
    ids = "user files configuration key volume space database owner listener adminListener url keys"
    assert [each.id for each in found] == [*ids.split(), "audit", "server"]
    assert {*before, healthy.folder / "mcp.json"} == {*healthy.folder.iterdir()}  # nothing is made


def readable(it: Deployment) -> None:
    it.key.chmod(0o644)


def of_another_user(it: Deployment) -> None:
    it.patch.setattr(os, "geteuid", lambda: USER + 1)


def no_key(it: Deployment) -> None:
    it.gateway["database"] = "postgresql://localhost:1/interlock"
    it.patch.setenv("XDG_DATA_HOME", str(it.folder / "empty"))


def of_root(it: Deployment) -> None:
    os.chown(it.key, os.getuid(), -1)
    it.patch.setattr(os, "geteuid", lambda: 0)


def few_files(it: Deployment) -> None:
    it.patch.setattr(resource, "getrlimit", lambda _: (1_024, 1_048_576))


def on_nfs(it: Deployment) -> None:
    mounts = f"24 1 8:1 / / rw - ext4 /dev/a rw\n30 24 0:50 / {it.folder} rw - nfs4 host:/data rw\n"
    (it.folder / "mounts").write_text(mounts)
    it.patch.setattr(machine, "_MOUNTS", it.folder / "mounts")


def read_only(it: Deployment) -> None:
    it.patch.setattr(os, "access", lambda *_: False)


def writable_by_all(it: Deployment) -> None:
    it.folder.chmod(0o777)


def full(it: Deployment) -> None:
    it.patch.setattr(machine, "free_bytes", lambda _: 1_000)


def nearly_full(it: Deployment) -> None:
    it.patch.setattr(machine, "free_bytes", lambda _: machine.MIN_FREE - 1)


def full_copy(it: Deployment) -> None:
    it.gateway |= {"audit": {"copy": str(it.folder)}}
    it.patch.setattr(stored, "free_bytes", lambda _: stored.RESERVE - 1)


def damaged(it: Deployment) -> None:
    content = (it.folder / "interlock.db").read_bytes()
    (it.folder / "interlock.db").write_bytes(content[:8_000] + b"\xff" * 8_000 + content[16_000:])


def lost_key(it: Deployment) -> None:
    it.key.unlink()


def foreign(it: Deployment) -> None:
    it.patch.setenv("INTERLOCK_KEY", "0123456789abcdef0f1e2d3c4b5a6978" * 2)
    it.environ["INTERLOCK_KEY"] = os.environ["INTERLOCK_KEY"]


def set_gateway(**members: Any) -> Callable[[Deployment], None]:
    def plant(it: Deployment) -> None:
        it.gateway |= members

    return plant


def open_without_keys(it: Deployment) -> None:
    it.gateway |= {"listen": "0.0.0.0:8080", "database": str(it.folder / "new.db")}


def broken_server(it: Deployment) -> None:
    it.servers = {"e": {"command": "no-such-program"}}


def silent_server(it: Deployment) -> None:
    it.patch.setattr(deployment, "IDLE_TIMEOUT", 0.1)
    it.servers = {"e": {"command": "sleep", "args": ["100"]}}


def no_collector(it: Deployment) -> None:
    it.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"


PUBLIC = {"publicUrl": "https://tools.example.com/mcp", "proxies": ["10.0.0.1"]}


@pytest.mark.slow("makes many deployments")
@each_row(
    "plant, id, state",
    [
        (of_root, "user", "warning"),
        (few_files, "files", "warning"),
        (set_gateway(limits={"perKey": {"rate": "often"}}), "configuration", "error"),
        (set_gateway(databse="g.db"), "configuration", "warning"),
        (readable, "key", "error"),
        (of_another_user, "key", "error"),
        (no_key, "key", "error"),
        (on_nfs, "volume", "error"),
        (read_only, "volume", "error"),
        (writable_by_all, "volume", "warning"),
        (full, "space", "error"),
        (nearly_full, "space", "warning"),
        (set_gateway(database="postgresql://localhost:1/interlock"), "database", "error"),
        (damaged, "database", "error"),
        (foreign, "owner", "error"),
        (lost_key, "owner", "error"),
        (open_without_keys, "listener", "error"),
        (set_gateway(publicUrl="http://127.0.0.1:1/mcp", auth={"oauth": {}}), "frontDoor", "error"),
        (set_gateway(listen="0.0.0.0:8080"), "listener", "warning"),
        (set_gateway(admin={"listen": "127.0.0.1:8080"}), "adminListener", "error"),
        (set_gateway(listen="0.0.0.0:8080"), "url", "warning"),
        (set_gateway(hosts=["other.example.com"], **PUBLIC), "url", "warning"),
        (set_gateway(publicUrl=PUBLIC["publicUrl"]), "url", "warning"),
        (set_gateway(audit={"mode": "off"}), "audit", "error"),
        (full_copy, "audit", "error"),
        (broken_server, "server", "error"),
        (silent_server, "server", "error"),
        (no_collector, "traces", "error"),
    ],
)
def test_planted_fault_is_found(plant: Callable[[Deployment], None], id: str, state: str, deploy):
    it = deploy()
    with it.patch.context() as it.patch:
        plant(it)
        problems = {each.id: each.state for each in it.examine() if each.state != "ok"}

    assert problems.get(id) == state, problems


def test_key_that_ends_soon_is_named(deploy):
    (found,) = [each for each in deploy(lifetime=2 * DAY).examine() if each.state != "ok"]

    assert found.id == "keys"
    assert "of anna" in found.text


def test_postgresql_states_its_version_and_a_clock_that_differs_is_found(
    deploy, postgres_server, monkeypatch
):
    it = deploy()
    it.gateway["database"] = postgres_server
    monkeypatch.setenv("INTERLOCK_KEY", "0123456789abcdef0f1e2d3c4b5a6978" * 2)
    it.environ["INTERLOCK_KEY"] = os.environ["INTERLOCK_KEY"]

    def of(id: str) -> CheckResult:
        return next(each for each in it.examine() if each.id == id)

    assert of("clock").state == "ok"
    assert (of("database").state, "version 1" in of("database").text) == ("ok", True)
    now = stored.time
    monkeypatch.setattr(stored, "time", lambda: now() + 60)
    assert (of("clock").state, "differ by 60" in of("clock").text) == ("warning", True)
