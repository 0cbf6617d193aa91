"""`interlock db`: what an operator types, and what the command says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import ECHO


@pytest.fixture(autouse=True)
def configured(home: Path) -> Path:
    """A configuration with a database in the folder `gw`, and one in the folder `new`."""
    server = {
        "command": sys.executable,
        "args": ECHO,
        "env": {"TOKEN": "${user:TOKEN}"},
        "sharing": "per_user",
    }
    for name in ("gw", "new"):
        gateway = {"database": f"{name}/gateway.db"}
        content = {"mcpServers": {"e": server}, "gateway": gateway}
        (home / f"{name}.json").write_text(json.dumps(content))
    return home


@pytest.mark.slow("starts a server")
def test_backup_restore_and_a_new_key_by_the_commands(interlock, home: Path):
    def run(name: str, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        done = interlock(*words, "--config", f"{name}.json", stdin=stdin)
        return done.code, done.out.strip(), done.err

    stored = ("credentials", "set", "e", "TOKEN", "--user", "local")
    assert run("gw", *stored, stdin=b"secret")[0] == 0
    call = ("call", "e:say", "text=hello")
    assert run("gw", *call)[:2] == (0, "hello")
    saved = run("gw", "db", "backup", "saved", "--with-key", "safe.key")
    assert saved[:2] == (0, str(home / "saved"))
    assert saved[2].startswith("backed up: 2 files, ")
    refused = run("new", "db", "restore", "saved")
    assert refused[0] == 1
    assert f"put that key into {home}/new/gateway.key, or set INTERLOCK_KEY" in refused[2]
    (home / "new").mkdir()
    (home / "safe.key").rename(home / "new" / "gateway.key")
    assert run("new", "db", "restore", "saved")[:2] == (0, str(home / "new" / "gateway.db"))
    assert run("new", *call)[:2] == (0, "hello")  # with the stored credential
    code, id, told = run("new", "db", "rotate-key")
    assert run("new", *call)[:2] == (0, "hello")

    assert (code, len(id)) == (0, 8)
    assert f"the old key is in {home}/new/gateway.key." in told
    code, verdict, _ = run("new", "audit", "verify")
    assert (code, verdict.endswith(": whole")) == (0, True)
    hashes = run("new", "audit", "hash", '{"a": 1}')[1].split()
    assert run("gw", "audit", "hash", '{"a": 1}')[1] == hashes[1]
    assert len({*hashes}) == 2


def test_url_with_a_password_among_the_arguments_is_refused(
    interlock, monkeypatch: pytest.MonkeyPatch
):
    url = "postgresql://anna:geheim@127.0.0.1:1/x"
    for given in (url, "postgresql://anna@127.0.0.1:1/x?password=geheim"):
        refused = interlock("db", "copy", "gw/gateway.db", given)
        assert (refused.code, "set PGPASSWORD" in refused.err) == (2, True)
        assert "geheim" not in refused.err
    monkeypatch.setenv("DATABASE_URL", url)
    refused = interlock("db", "copy", "none.db", "${DATABASE_URL}")
    assert (refused.code, "none.db does not exist" in refused.err) == (1, True)
    assert interlock("db", "copy", "none.db", "mysql://x").code == 2
