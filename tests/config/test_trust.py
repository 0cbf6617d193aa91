import stat
from pathlib import Path

import msgspec
import pytest

from interlock import config
from interlock.config import trust
from interlock.errors import ConfigError

CONTENT = b'{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who works in a folder of their own, with no configuration and no trust yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(config.VARIABLE, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return tmp_path


@pytest.fixture
def project(home: Path) -> Path:
    path = home / "work" / ".mcp.json"
    path.write_bytes(CONTENT)
    return path


def test_a_file_that_came_with_the_folder_is_not_found(project: Path) -> None:
    assert config.find() is None
    assert trust.project_file() == project
    assert not trust.is_trusted(project)
    with pytest.raises(ConfigError, match="is not trusted: interlock servers trust"):
        trust.load(project)


def test_a_folder_without_such_a_file_has_nothing_to_trust(home: Path) -> None:
    assert trust.project_file() is None
    assert trust.untrusted_warning() is None
    assert not trust.is_trusted(home / "work" / ".mcp.json")


def test_an_untrusted_file_is_mentioned_without_its_words(project: Path) -> None:
    assert trust.untrusted_warning() == (
        "found .mcp.json (1 server) in this folder, ignored until you trust it: "
        "interlock servers trust"
    )
    project.write_bytes(b'{"mcpServers": \x1b[2J')
    assert trust.untrusted_warning() == (
        "found .mcp.json (which has errors) in this folder, ignored until you trust it: "
        "interlock servers trust"
    )


def test_trust_holds_for_the_exact_content_only(project: Path) -> None:
    trust.grant(project, trust.fingerprint(project))

    assert trust.is_trusted(project)
    assert trust.untrusted_warning() is None
    assert set(trust.load(project).servers) == {"time"}
    assert config.find() is None

    project.write_bytes(CONTENT + b"\n")
    assert not trust.is_trusted(project)
    with pytest.raises(ConfigError, match="is not trusted"):
        trust.load(project)

    project.write_bytes(CONTENT)
    assert trust.is_trusted(project)


def test_trust_does_not_move_with_a_copy(home: Path, project: Path) -> None:
    trust.grant(project, trust.fingerprint(project))
    other = home / ".mcp.json"
    other.write_bytes(CONTENT)

    assert not trust.is_trusted(other)


def test_each_folder_is_trusted_for_itself(home: Path, project: Path) -> None:
    other = home / ".mcp.json"
    other.write_bytes(CONTENT)
    for path in (project, other):
        trust.grant(path, trust.fingerprint(path))

    assert trust.is_trusted(project)
    assert trust.is_trusted(other)


def test_a_file_is_the_same_however_its_place_is_written(project: Path) -> None:
    trust.grant(Path(".mcp.json"), trust.fingerprint(project))

    assert trust.is_trusted(project)
    assert trust.is_trusted(Path("..", "work", ".mcp.json"))


def test_what_was_not_shown_is_not_trusted(project: Path) -> None:
    seen = trust.fingerprint(project)
    project.write_bytes(CONTENT.replace(b"uvx", b"evil"))

    with pytest.raises(ConfigError, match="has changed since it was shown: look at it again"):
        trust.grant(project, seen)
    assert not trust.is_trusted(project)


def test_a_wrong_file_cannot_be_trusted(project: Path) -> None:
    project.write_bytes(b"{")

    with pytest.raises(ConfigError, match="line 1 column 2"):
        trust.grant(project, trust.fingerprint(project))


@pytest.mark.parametrize("damage", [b"", b"[]", b"\xff", b'{"x": 1}'])
def test_a_damaged_note_of_trust_is_no_trust(home: Path, project: Path, damage: bytes) -> None:
    trust.grant(project, trust.fingerprint(project))
    (store,) = (home / "data").rglob("trusted.json")
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert msgspec.json.decode(store.read_bytes()) == {str(project): trust.fingerprint(project)}

    store.write_bytes(damage)
    assert not trust.is_trusted(project)
    trust.grant(project, trust.fingerprint(project))
    assert trust.is_trusted(project)


def test_trust_that_cannot_be_noted_is_an_error(home: Path, project: Path) -> None:
    (home / "data").write_bytes(b"in the way")

    with pytest.raises(ConfigError, match=r"trusted\.json cannot be written: Not a directory"):
        trust.grant(project, trust.fingerprint(project))
