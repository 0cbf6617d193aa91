"""Full-text search of conversations: an index of words in SQLite, and PostgreSQL's own.

1. A query is words in any order; each is the beginning of a word in the text, unless it has one
   letter. Words in double quotes stand next to each other. Nothing else in a query has a meaning.
2. Texts in Chinese, Japanese, Korean or Thai have no spaces between words. Queries in these, and
   queries without any letter, are searched verbatim, which reads all messages of the owner.
3. The index of SQLite contains the owner of each message, so the cost of a search does not depend
   on other owners' conversations.
"""

from __future__ import annotations

import re

MAX_TERMS = 32  # terms of a query; further ones are ignored
_TERM = re.compile(r'"([^"]*)"|([^\s"]+)')
_WORD = re.compile(r"[^\W_]+")
# Compiled on first use, because compiling takes 3 ms.
_NO_SPACES = "[\u0e00-\u0e7f\u1100-\u11ff\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]"

POSTGRES_MATCH = "messages.words @@ to_tsquery('simple', :words)"
# The operator's function, for which PostgreSQL uses no index.
POSTGRES_SCAN = "ts_match_vq(messages.words, to_tsquery('simple', :words))"


class Words:
    """The words of a query.

    Args:
        query: The query as a person wrote it.

    Attributes:
        are_indexed: Whether an index can find them; otherwise the query is searched verbatim.
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
        return [" ".join(words) for words, _ in self._phrases]

    def for_sqlite(self, owner: str) -> str:
        phrases = [f'"{" ".join(words)}"{"*" * starts}' for words, starts in self._phrases]
        return f'owner : "o{owner.encode().hex()}" AND content : ({" AND ".join(phrases)})'

    def for_postgres(self) -> str:
        phrases = []
        for words, starts in self._phrases:
            quoted = [f"'{word}'" for word in words]
            quoted[-1] += ":*" * starts
            phrases.append(f"({' <-> '.join(quoted)})")
        return " & ".join(phrases)
