"""Full-text search of conversations: an index of words in SQLite, and PostgreSQL's own.

1. A query is words in any order; each is the beginning of a word in the text, unless it has one
   letter. Words in double quotes stand next to each other. Nothing else in a query has a meaning.
2. Texts in Chinese, Japanese, Korean or Thai have no spaces between words. Queries in these, and
   those without any letter, are looked for as they are, which reads all messages of the owner.
3. The index of SQLite knows the owner of each message, so a search costs the same for an owner of
   few conversations among many.
"""

from __future__ import annotations

import re

from sqlalchemy import Connection, event

from interlock.store.database.tables import messages

MAX_TERMS = 32  # of a query; more are ignored
INDEXED = 100_000  # characters of a message that PostgreSQL indexes, as its limit is in bytes
_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')
_WORD = re.compile(r"[^\W_]+")
# Compiled when it is first used, as that takes 3 ms.
_NO_SPACES = "[\u0e00-\u0e7f\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"

# `message_words` gives each message a number that no VACUUM changes.
SQLITE_TABLES = (
    "CREATE TABLE message_words (id INTEGER PRIMARY KEY, conversation_id VARCHAR NOT NULL,"
    " position INTEGER NOT NULL, owner VARCHAR NOT NULL)",
    "CREATE UNIQUE INDEX message_words_message ON message_words (conversation_id, position)",
    "CREATE VIRTUAL TABLE message_index USING fts5(content, owner, content='',"
    " tokenize='unicode61 remove_diacritics 2')",
    "CREATE TRIGGER message_words_added AFTER INSERT ON messages WHEN new.role <> 'system' BEGIN"
    " INSERT INTO message_words (conversation_id, position, owner)"
    " SELECT new.conversation_id, new.position, 'o' || lower(hex(owner)) FROM conversations"
    " WHERE id = new.conversation_id;"
    " INSERT INTO message_index (rowid, content, owner)"
    " SELECT id, new.content, owner FROM message_words"
    " WHERE conversation_id = new.conversation_id AND position = new.position; END",
    "CREATE TRIGGER message_words_deleted AFTER DELETE ON messages"
    " WHEN old.role <> 'system' BEGIN"
    " INSERT INTO message_index (message_index, rowid, content, owner)"
    " SELECT 'delete', id, old.content, owner FROM message_words"
    " WHERE conversation_id = old.conversation_id AND position = old.position;"
    " DELETE FROM message_words"
    " WHERE conversation_id = old.conversation_id AND position = old.position; END",
)
SQLITE_FILL = (
    "INSERT INTO message_words (conversation_id, position, owner)"
    " SELECT conversation_id, position, 'o' || lower(hex(owner)) FROM messages JOIN conversations"
    " ON conversations.id = conversation_id WHERE role <> 'system' ORDER BY messages.created",
    "INSERT INTO message_index (rowid, content, owner)"
    " SELECT message_words.id, content, owner FROM message_words JOIN messages"
    " USING (conversation_id, position) ORDER BY message_words.id",
)
# Only letters and digits are left, so that PostgreSQL does not take a path or a host for one word.
# The words are stored: to look for a phrase, it reads those of each message with all its words.
POSTGRES_TABLES = (
    "ALTER TABLE messages ADD COLUMN words tsvector GENERATED ALWAYS AS ("
    f"to_tsvector('simple'::regconfig, regexp_replace(left(content, {INDEXED}),"
    r" '(\W|_)+', ' ', 'g'))) STORED",
    "CREATE INDEX message_words ON messages USING gin (words)",
)
POSTGRES_MATCH = "messages.words @@ to_tsquery('simple', :words)"
# The function of that operator, for which PostgreSQL uses no index.
POSTGRES_SCAN = "ts_match_vq(messages.words, to_tsquery('simple', :words))"


class Words:
    """The words of a query.

    Args:
        query: As a person wrote it.

    Attributes:
        are_indexed: An index can find them; otherwise the query is looked for as it is.
    """

    def __init__(self, query: str) -> None:
        self._phrases: list[tuple[list[str], bool]] = []
        for quoted, plain in _TERM.findall(query)[:MAX_TERMS]:
            words = _WORD.findall(quoted or plain)
            if words:
                self._phrases.append((words, bool(plain) and len(words[-1]) > 1))
        self.are_indexed = bool(self._phrases) and not re.search(_NO_SPACES, query)

    @property
    def plain(self) -> list[str]:
        """Each phrase as a text."""
        return [" ".join(words) for words, _ in self._phrases]

    def for_sqlite(self, owner: str) -> str:
        """Return the expression for `message_index`."""
        phrases = [f'"{" ".join(words)}"{"*" * starts}' for words, starts in self._phrases]
        return f'owner : "o{owner.encode().hex()}" AND content : ({" AND ".join(phrases)})'

    def for_postgres(self) -> str:
        """Return the expression for `to_tsquery`."""
        phrases = []
        for words, starts in self._phrases:
            quoted = [f"'{word}'" for word in words]
            quoted[-1] += ":*" * starts
            phrases.append(f"({' <-> '.join(quoted)})")
        return " & ".join(phrases)


def create_index(connection: Connection) -> None:
    """Create the index of a database, and fill it with the messages that are there."""
    is_sqlite = connection.dialect.name == "sqlite"
    for statement in (*SQLITE_TABLES, *SQLITE_FILL) if is_sqlite else POSTGRES_TABLES:
        connection.exec_driver_sql(statement)


event.listen(messages, "after_create", lambda _, connection, **__: create_index(connection))

__all__ = ["POSTGRES_MATCH", "POSTGRES_SCAN", "Words", "create_index"]
