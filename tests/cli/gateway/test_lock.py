"""`interlock lock`: operators look at what servers offer, and accept what was shown."""

from __future__ import annotations

import asyncio
import errno
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock import durable
from interlock.store.database.database import open_database
from interlock.store.pin import TOOL_KINDS, Offered
from interlock.store.pins import PinStore
from interlock.toolbox.pins import offered_server, offered_tool

Offer = Callable[..., None]
REFUSE_FIND = """
    CREATE TRIGGER refuse_find BEFORE INSERT ON audit WHEN NEW.tool = 'crm:find'
    BEGIN SELECT RAISE(ABORT, 'the disk is full'); END
"""

REFUSE_PINS = """
    CREATE TRIGGER refuse_pins BEFORE UPDATE ON pins
    BEGIN SELECT RAISE(ABORT, 'the disk is full'); END
"""


@pytest.fixture
def offer(home: Path) -> Offer:
    """Have a gateway see the tools of the server "crm", by their descriptions."""
    config = home / "config" / "interlock" / "mcp.json"
    config.parent.mkdir(parents=True)
    gateway = {"database": str(home / "g.db")}
    config.write_text(json.dumps({"mcpServers": {}, "gateway": gateway}))

    async def see(instructions: str, tools: dict[str, Any]) -> None:
        database = await open_database(home / "g.db")
        offered = [
            offered_tool({"name": name, "description": text, "annotations": hints(text)}, None)
            for name, text in tools.items()
        ]
        server = offered_server({"command": "crm"}, instructions)
        await PinStore(database).check("crm", [server, *offered], TOOL_KINDS)
        await database.close()

    def see_now(instructions: str = "", **tools: str) -> None:
        asyncio.run(see(instructions, tools))

    return see_now


def hints(text: str) -> dict[str, bool]:
    return {"readOnlyHint": text.startswith("Find")}


def decisions(interlock: Any) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in interlock("audit", "export").out.splitlines()]
    return [each for each in records if each["kind"] == "pin"]


def states(interlock: Any) -> dict[str, str]:
    pins = interlock("lock", "status", "--json").json
    return {each.get("tool", each["server"]): each["state"] for each in pins}


def test_status_lists_every_definition_and_counts_waiting_ones(interlock, offer: Offer):
    assert "no definitions yet" in interlock("lock", "status").err
    offer(refund="Refund.", find="Find.", old="Old.")
    offer(refund="Pay.", find="Find.", more="More.")

    ran = interlock("lock", "status", "crm")

    rows = [line.split()[:2] for line in ran.out.splitlines() if line.startswith("crm:")]
    assert rows == [
        ["crm:find", "accepted"],
        ["crm:more", "new"],
        ["crm:old", "gone"],
        ["crm:refund", "changed"],
    ]
    assert ran.err == "2 of 5 wait: see `interlock lock diff ADDRESS`\n"
    pin = next(
        each for each in interlock("lock", "status", "--json").json if each["state"] == "changed"
    )
    assert set(pin) == {"server", "kind", "tool", "state", "since", "hash", "seenHash"}


def test_diff_shows_both_sides_with_invisible_characters_and_the_hash_to_accept(
    interlock, offer: Offer
):
    offer(refund="Refund.")
    offer(refund="Refund.\u202e")

    out = interlock("lock", "diff", "crm:refund").out
    (shown,) = interlock("lock", "diff", "crm:refund", "--json").json

    assert '-description: "Refund."\n+description: "Refund.\\u202e"\n' in out
    assert out.endswith(f"hash {shown['seenHash']}\n")
    assert shown["accepted"]["description"] == "Refund."
    assert shown["seen"]["description"] == "Refund.\u202e"


@pytest.mark.slow("works through much data")
def test_accept_requires_the_hash_that_was_shown(interlock, offer: Offer):
    offer(refund="One.")
    offer(refund="Two.")
    (shown,) = interlock("lock", "diff", "crm:refund", "--json").json
    offer(refund="Three.")

    late = interlock("lock", "accept", "crm:refund", "--hash", shown["seenHash"])
    old = interlock("lock", "accept", "crm:refund", "--hash", shown["hash"])

    assert (late.code, old.code) == (1, 1)
    assert late.err == (
        "error: crm:refund has changed since it was shown, so nothing was decided: see"
        " `interlock lock diff crm:refund`\n"
    )
    (shown,) = interlock("lock", "diff", "crm:refund", "--json").json
    assert interlock("lock", "accept", "crm:refund", "--hash", shown["seenHash"]).code == 0
    assert states(interlock)["crm:refund"] == "accepted"


@pytest.mark.slow("works through much data")
def test_accept_without_terminal_hash_or_yes_shows_and_accepts_nothing(interlock, offer: Offer):
    offer(refund="One.")
    offer("Be rude.", refund="Two.")

    ran = interlock("lock", "accept", "crm")

    assert ran.code == 1
    assert '+instructions: "Be rude."' in ran.out
    assert '+description: "Two."' in ran.out
    assert set(states(interlock).values()) == {"changed"}
    assert interlock("lock", "accept", "crm", "--yes").code == 0
    assert set(states(interlock).values()) == {"accepted"}
    assert interlock("lock", "accept", "crm").err == "no definitions of crm are waiting\n"


@pytest.mark.slow("works through much data")
def test_accepted_risk_from_hints_counts_as_configured(interlock, offer: Offer):
    offer(refund="Refund.", find="Find.")
    for name in ("refund", "find"):
        ran = interlock("lock", "accept", f"crm:{name}", "--risk-from-hints", "--yes")
        assert ran.code == 0

    pins = {
        each.get("tool"): each.get("risk") for each in interlock("lock", "status", "--json").json
    }
    assert (pins["crm:refund"], pins["crm:find"]) == ("write", "read")


def test_decisions_are_recorded_with_the_pin_before_and_after(interlock, offer: Offer):
    offer(refund="One.")
    interlock("lock", "reject", "crm:refund")

    (record,) = decisions(interlock)
    assert (record["user"], record["tool"], record["decision"]) == (
        "user:local",
        "crm:refund",
        "reject",
    )
    assert (record["before"]["state"], record["after"]["state"]) == ("accepted", "new")


@pytest.mark.slow("fills a database")
def test_accepted_definitions_can_be_exported_and_imported_into_another_database(
    interlock, offer: Offer, home: Path
):
    offer(refund="One.")
    assert interlock("lock", "export", "lock.json").err == "wrote 2 definitions to lock.json\n"
    (home / "g.db").unlink()
    offer(refund="Two.", find="Find.")
    with closing(sqlite3.connect(home / "g.db", isolation_level=None)) as database:
        database.execute(REFUSE_FIND)
        refused = interlock("lock", "import", "lock.json")
        assert (refused.code, decisions(interlock)) == (1, [])
        assert set(states(interlock).values()) == {"accepted"}  # all or nothing
        database.execute("DROP TRIGGER refuse_find")
    assert interlock("lock", "import", "lock.json").err == "accepted 2 definitions of lock.json\n"

    offer(refund="Two.", find="Find.")

    assert states(interlock) == {"crm": "accepted", "crm:refund": "changed", "crm:find": "new"}
    assert sorted(
        (each.get("tool", each["server"]), "before" in each, "after" in each)
        for each in decisions(interlock)
    ) == [("crm", True, True), ("crm:find", True, False), ("crm:refund", True, True)]


@pytest.fixture
def strict(home: Path, offer: Offer) -> Path:
    """Have an empty lock file decide, and return it."""
    file = home / "lock.json"
    file.write_text('{"version": 1, "servers": {}}')
    config = home / "config" / "interlock" / "mcp.json"
    written = json.loads(config.read_text())
    written["gateway"]["lock"] = {"mode": "strict", "file": str(file)}
    config.write_text(json.dumps(written))
    offer(find="Find.")
    return file


def test_strict_acceptance_is_recorded_before_and_after_the_lock_file_changes(
    interlock, strict: Path
):
    ran = interlock("lock", "accept", "crm:find", "--yes")

    assert (ran.code, "Find." in strict.read_text()) == (0, True)
    assert [each["decision"] for each in decisions(interlock)] == ["accept_started", "accept"]


def test_strict_acceptance_that_fails_is_not_recorded_as_accepted(
    interlock, strict: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    before = strict.read_text()
    with closing(sqlite3.connect(home / "g.db", isolation_level=None)) as database:
        database.execute(REFUSE_FIND)
        unrecorded = interlock("lock", "accept", "crm:find", "--yes")
        database.execute("DROP TRIGGER refuse_find")
    assert (unrecorded.code, strict.read_text(), decisions(interlock)) == (1, before, [])

    def fail(*_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(durable, "_put", fail)
    unwritten = interlock("lock", "accept", "crm:find", "--yes")

    assert (unwritten.code, strict.read_text()) == (1, before)
    assert [each["decision"] for each in decisions(interlock)] == ["accept_started"]
    pin = next(each for each in interlock("lock", "status", "--json").json if "tool" in each)
    assert "decidedBy" not in pin
    assert sorted(each.name for each in home.glob(".lock.json.*")) == []


def test_strict_acceptance_that_fails_without_a_trail_is_harmless(
    interlock, strict: Path, home: Path, monkeypatch: pytest.MonkeyPatch
):
    config, before = home / "config" / "interlock" / "mcp.json", strict.read_text()
    written = json.loads(config.read_text())
    written["gateway"]["audit"] = {"mode": "off"}
    config.write_text(json.dumps(written))

    def fail(*_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as failing:
        failing.setattr(durable, "_put", fail)
        unwritten = interlock("lock", "accept", "crm:find", "--yes")
    (pin,) = interlock("lock", "diff", "crm:find", "--json").json
    assert (unwritten.code, strict.read_text(), "decidedBy" in pin) == (1, before, False)

    with closing(sqlite3.connect(home / "g.db", isolation_level=None)) as database:
        database.execute(REFUSE_PINS)
        assert interlock("lock", "accept", "crm:find", "--yes").code == 1
        assert "Find." in strict.read_text()  # the file decides, and was written first
        database.execute("DROP TRIGGER refuse_pins")
    assert interlock("lock", "accept", "crm:find", "--yes").code == 0
    (pin,) = interlock("lock", "diff", "crm:find", "--json").json
    assert (pin["state"], pin["decidedBy"]) == ("accepted", "user:local")


def test_lock_file_with_a_hash_that_differs_from_its_definition_is_refused(
    interlock, offer: Offer, home: Path
):
    offer(refund="One.")
    interlock("lock", "export", "lock.json")
    path = home / "lock.json"
    path.write_text(path.read_text().replace("One.", "Two."))

    ran = interlock("lock", "import", "lock.json")

    assert ran.code == 1
    assert ran.err == "error: lock.json: the hash of crm:refund is not that of its definition\n"
    assert states(interlock)["crm:refund"] == "accepted"


def test_unknown_address_is_an_error(interlock, offer: Offer):
    offer(refund="One.")

    ran = interlock("lock", "diff", "crm:nothing")

    assert (ran.code, ran.out) == (1, "")
    assert ran.err == "error: no definition of 'crm:nothing': see `interlock lock status`\n"


def test_upgrade_accepts_what_only_interlock_writes_differently_after_one_summary(
    interlock, offer: Offer, monkeypatch: pytest.MonkeyPatch
):
    offer(refund="Refund.", find="Find.", pay="Pay.")

    def titled(definition: dict[str, Any], _operation: object) -> Offered:
        document = {**definition, "title": definition["name"].title()}
        return Offered("tool", definition["name"], document, definition, format=2)

    monkeypatch.setitem(globals(), "offered_tool", titled)
    offer(refund="Refund.", find="Find.", pay="Pay more.")

    assert "2 definitions written differently" in interlock("lock", "status").err
    ran = interlock("lock", "accept", "--upgrade")
    assert ran.out.splitlines()[0].startswith("2 definitions of 1 servers differ only because")
    assert ran.out.splitlines()[1].split() == ["2", "+", "title", "such", "as", "crm:find"]
    assert "add --yes" in ran.err
    assert states(interlock)["crm:pay"] == "changed"

    ran = interlock("lock", "accept", "--upgrade", "--yes")
    assert "accepted 2 definitions" in ran.err
    assert states(interlock)["crm:pay"] == "changed"
    assert "no definition is written differently" in interlock("lock", "accept", "--upgrade").err
    assert len(decisions(interlock)) == 2
    for wrong in ([], ["crm:pay", "--upgrade"], ["--upgrade", "--hash", "1"]):
        ran = interlock("lock", "accept", *wrong)
        assert "name an ADDRESS, or give --upgrade alone" in ran.err
