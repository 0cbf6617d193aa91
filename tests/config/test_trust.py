import json
import stat
from pathlib import Path

import msgspec
import pytest

from interlock import config
from interlock.config import trust
from interlock.errors import ConfigError
from tests.support.rows import each_row

pytestmark = pytest.mark.usefixtures("home")

CONTENT = b'{"mcpServers": {"time": {"command": "uvx", "args": ["mcp-server-time"]}}}'


@pytest.fixture
def project(home: Path) -> Path:
    path = home / "work" / ".mcp.json"
    path.write_bytes(CONTENT)
    return path


def test_the_file_of_a_folder_is_not_loaded_without_trust(project: Path) -> None:
    assert config.find() is None
    assert trust.project_file() == project
    assert not trust.is_trusted(project)
    with pytest.raises(ConfigError, match="is not trusted: review it with `interlock servers"):
        trust.load(project)


def test_a_folder_without_a_project_file_has_nothing_to_trust(home: Path) -> None:
    assert trust.project_file() is None
    assert trust.untrusted_warning() is None
    assert not trust.is_trusted(home / "work" / ".mcp.json")


def test_the_warning_of_an_untrusted_file_does_not_quote_it(project: Path) -> None:
    assert trust.untrusted_warning() == (
        "found .mcp.json (1 server) in this folder, ignored until you trust it: "
        "interlock servers trust"
    )
    project.write_bytes(b'{"mcpServers": \x1b[2J')
    assert trust.untrusted_warning() == (
        "found .mcp.json (which has errors) in this folder, ignored until you trust it: "
        "interlock servers trust"
    )


def test_trust_ends_with_any_change_of_the_content(project: Path) -> None:
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


def test_trust_ends_with_any_change_of_a_file_of_variables(project: Path) -> None:
    variables = project.parent / "own.env"
    variables.write_text("A=1\n")
    entry = {"command": "x", "envFile": str(variables)}
    project.write_text(json.dumps({"mcpServers": {"x": entry}}))
    trust.grant(project, trust.fingerprint(project))

    for change in (lambda: variables.write_text("A=2\n"), variables.unlink):
        change()
        assert not trust.is_trusted(project)
    variables.write_text("A=1\n")
    assert set(trust.load(project).servers) == {"x"}


def test_a_copy_in_another_folder_is_not_trusted(home: Path, project: Path) -> None:
    trust.grant(project, trust.fingerprint(project))
    other = home / ".mcp.json"
    other.write_bytes(CONTENT)

    assert not trust.is_trusted(other)


def test_two_folders_can_be_trusted_independently(home: Path, project: Path) -> None:
    other = home / ".mcp.json"
    other.write_bytes(CONTENT)
    for path in (project, other):
        trust.grant(path, trust.fingerprint(path))

    assert trust.is_trusted(project)
    assert trust.is_trusted(other)


def test_trust_holds_for_every_path_of_the_same_file(project: Path) -> None:
    trust.grant(Path(".mcp.json"), trust.fingerprint(project))

    assert trust.is_trusted(project)
    assert trust.is_trusted(Path("..", "work", ".mcp.json"))


def test_grant_refuses_content_that_changed_since_it_was_shown(project: Path) -> None:
    seen = trust.fingerprint(project)
    project.write_bytes(CONTENT.replace(b"uvx", b"evil"))

    with pytest.raises(ConfigError, match="has changed since it was shown: review it again"):
        trust.grant(project, seen)
    assert not trust.is_trusted(project)


def test_grant_refuses_a_file_with_an_error(project: Path) -> None:
    project.write_bytes(b"{")

    with pytest.raises(ConfigError, match="line 1 column 2"):
        trust.grant(project, trust.fingerprint(project))


@each_row("damage", [b"", b"[]", b"\xff", b'{"x": 1}'])
def test_damaged_file_of_trusted_files_trusts_nothing(
    home: Path, project: Path, damage: bytes
) -> None:
    trust.grant(project, trust.fingerprint(project))
    (store,) = (home / "data").rglob("trusted.json")
    assert stat.S_IMODE(store.stat().st_mode) == 0o600
    assert msgspec.json.decode(store.read_bytes()) == {str(project): trust.fingerprint(project)}

    store.write_bytes(damage)
    assert not trust.is_trusted(project)
    trust.grant(project, trust.fingerprint(project))
    assert trust.is_trusted(project)


def test_grant_reports_that_trust_cannot_be_stored(home: Path, project: Path) -> None:
    (home / "data").write_bytes(b"a file instead of a folder")

    with pytest.raises(ConfigError, match=r"trusted\.json cannot be written: Not a directory"):
        trust.grant(project, trust.fingerprint(project))


def test_a_folder_whose_name_is_not_utf8_is_trusted_alone(home: Path) -> None:
    one, other = (home / name / ".mcp.json" for name in ("caf\udce9", "caf\udce8"))
    for path in (one, other):
        path.parent.mkdir()
        path.write_bytes(CONTENT)
    trust.grant(one, trust.fingerprint(one))

    assert trust.is_trusted(one)
    assert not trust.is_trusted(other)
