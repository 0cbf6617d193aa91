"""What importing the store costs, and packages that are not installed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.errors import MissingExtra
from interlock.store.database.database import open_database


def test_importing_the_store_does_not_import_sqlalchemy():
    program = "import sys, interlock.store; print('sqlalchemy' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "False\n"


def test_reading_an_audit_trail_that_is_ready_does_not_import_sqlalchemy(sqlite: str):
    program = """
import asyncio, sys
from interlock.store import AuditReader
from interlock.store.audit.reading import CallFilter

async def main():
    async with AuditReader.open(sys.argv[1]) as reader:
        print(await reader.calls(CallFilter()))

asyncio.run(main())
print('sqlalchemy' in sys.modules)
"""
    asyncio.run(_create(sqlite))

    assert subprocess.check_output([sys.executable, "-c", program, sqlite]) == b"[]\nFalse\n"


async def _create(location: str) -> None:
    await (await open_database(location)).close()


@pytest.mark.parametrize("package", ["sqlalchemy", "aiosqlite", "greenlet"])
@pytest.mark.slow("starts a process that loads much")
def test_a_missing_package_is_an_error_that_names_the_extra(tmp_path: Path, package: str):
    program = """
import asyncio, sys
sys.modules[sys.argv[1]] = None
import interlock.store
from interlock.errors import MissingExtra

async def main():
    from interlock.store import ConversationStore
    async with ConversationStore.open(sys.argv[2]):
        pass

try:
    asyncio.run(main())
except MissingExtra as error:
    print(error)
"""

    command = [sys.executable, "-c", program, package, str(tmp_path / "conversations.db")]
    output = subprocess.check_output(command, text=True)

    assert output == f"{MissingExtra('keeping conversations', 'chat')}\n"
