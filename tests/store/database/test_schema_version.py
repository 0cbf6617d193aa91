"""The version of the tables, which is made from their source."""

from __future__ import annotations

from pathlib import Path

import interlock.store.database.tables
from interlock.store.database.schema_version import OUTDATED, REVISION, UNRELEASED, revision_of
from interlock.store.database.tables import versions

SOURCE = Path(interlock.store.database.tables.__file__).read_text()


def test_version_is_made_from_the_tables_and_is_short_enough_for_its_column():
    assert revision_of(SOURCE) == REVISION
    assert REVISION.startswith(UNRELEASED)
    assert len(REVISION) <= versions.c.version_num.type.length


def test_every_edit_of_the_tables_makes_another_version():
    edits = {
        'Column("title", Text, nullable=False)': 'Column("title", Text)',
        'Index("chat_calls_id", "id")': 'Index("chat_calls_id", "tool")',
        "reason <> ''\"": "reason <> 'x'\"",
        "sqlite_with_rowid=False": "sqlite_with_rowid=True",
        "remove_diacritics 2": "remove_diacritics 1",
        "_INDEXED = 100_000": "_INDEXED = 100_001",
        'ondelete="CASCADE"': "",
    }
    versions_made = {revision_of(SOURCE)}
    for before, after in edits.items():
        assert before in SOURCE
        versions_made.add(revision_of(SOURCE.replace(before, after, 1)))

    assert len(versions_made) == 1 + len(edits)
    assert not versions_made & OUTDATED


def test_edits_of_comments_docstrings_and_white_space_keep_the_version():
    assert "# from 0, without gaps" in SOURCE
    assert "An aware time." in SOURCE
    changed = SOURCE.replace("# from 0, without gaps", "# it's the place; 1 + 1")
    changed = changed.replace("An aware time.", "A time.")
    changed = changed.replace('    Column("role"', '    # Who has said it.\n\n    Column( "role"')

    assert changed != SOURCE
    assert revision_of(changed) == REVISION
