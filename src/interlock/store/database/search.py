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

MAX_TERMS = 32  # of a query; more are ignored
_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')
_WORD = re.compile(r"[^\W_]+")
# Compiled when it is first used, as that takes 3 ms.
_NO_SPACES = "[\u0e00-\u0e7f\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"

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


__all__ = ["POSTGRES_MATCH", "POSTGRES_SCAN", "Words"]
