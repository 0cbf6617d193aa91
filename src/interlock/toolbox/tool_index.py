"""A search for tools by words: BM25F over their definitions, in memory, without IO and policy.

The weight of a word in a tool depends on that tool alone, because the average lengths of fields
are constants. So the index is updated tool by tool, and the ranking of some tools does not change
when others are added.
"""

from __future__ import annotations

import re
import unicodedata
from array import array
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import cache
from heapq import nlargest, nsmallest
from itertools import compress, islice
from math import log
from sys import intern
from typing import Any

from msgspec import Struct

from interlock.toolbox.search_words import QUESTIONS, READING, STOP_WORDS, WORDS
from interlock.types import JsonObject

MAX_QUERY = 1_000  # characters of a query that are read
MAX_WORDS = 64  # different words of a query that are read
MAX_PREFIXED = 5  # terms that a query word stands for as their prefix
MIN_PREFIX = 3  # characters of such a query word
MIN_SERVER = 4  # characters of a query word that stands for a server's name as its beginning
MIN_HALF = 3  # characters of each half of a query word that is read as two words
MAX_PARAMETERS = 60  # parameters of a tool that are read, in two levels
STEP = 50  # tools that are indexed between two yields of `update`

K1 = 1.2
MAX_COUNT = 4  # occurrences of a word in a field that count
ALTERNATIVE = 0.6  # the weight of an alternative, compared with the word itself
ANSWERS = 1.2  # the factor for tools that read, if the query is a question
SPELLED = 0.05  # added to the factor for a name that the query spells, such as the same plural
MOST = 1.3 * (1 + SPELLED) * 1.5 * ANSWERS  # the largest factor of `_bonus`; the least is 0.7
_IN_NAME = 1.0  # added to the weight of a term, which is less, if the tool's name contains the term
_TINY = 1e-9  # less than the score of any match


class _Field(Struct, frozen=True):
    name: str
    weight: float
    length: float  # how much the field's length counts, from 0 to 1
    average: float  # words: a chosen value, so that a longer field counts less
    limit: int  # characters that are read


_FIELDS = (
    _Field("name", 4.0, 0.3, 3.0, 200),
    _Field("server", 3.0, 0.0, 1.2, 200),
    _Field("title", 2.5, 0.3, 3.4, 200),
    _Field("description", 1.6, 0.6, 22.0, 600),
    _Field("parameters", 0.8, 0.75, 8.0, 2_000),
    _Field("parameters", 0.3, 0.75, 40.0, 800),
)


class IndexedTool(Struct, frozen=True):
    """The parts of a definition that are searched.

    Attributes:
        address: "server:name", unique in an index.
        server: The name of the tool's server.
        name: The tool's name at its server.
        title: The tool's title, or "".
        description: The tool's description; its first 600 characters are searched.
        input_schema: The JSON Schema of the arguments.
    """

    address: str
    server: str
    name: str
    title: str
    description: str
    input_schema: JsonObject


class FoundTool(Struct, frozen=True):
    """A tool that a search has found.

    Attributes:
        address: "server:name".
        words: The words of the query that the tool matches.
    """

    address: str
    words: tuple[str, ...]


class _Ranking:
    """The matches of a query so far, by slot.

    Attributes:
        visible: 1 for each tool that the search may find.
        count: The number of these tools.
        scores: The sum of the scores of all words.
        words: The words that the tool matches, a bit for each.
        covered: The terms of the tool's name that are matched, a bit for each meaning.
        is_question: Whether the query begins like a question, which a tool that reads answers.
        spelled: The words of the query as they are spelled, without case and accents.
        fillers: The terms of its stop words, which may be parts of a tool's name.
        servers: The terms of the names of the servers whose tools the search may find.
        terms: The terms of the query, and the word for each; see `query_terms`.
    """

    def __init__(self, query: str, visible: bytearray, servers: frozenset[str]) -> None:
        words = _query_words(query, servers)
        self.visible = visible
        self.terms = _telling(words)
        self.is_question = _QUESTION.match(query) is not None
        self.spelled = frozenset(words)
        self.fillers = frozenset(stem(word) for word in self.spelled & _STOP_WORDS)
        self.servers = servers
        self.count = sum(visible)
        self.scores = [0.0] * len(visible)
        self.words = [0] * len(visible)
        self.covered = [0] * len(visible)
        self._bits: dict[str, int] = {}

    def bit(self, meaning: str) -> int:
        return self._bits.setdefault(meaning, 1 << len(self._bits))


class _Hits(Struct):
    """The visible tools that contain a term."""

    term: str
    is_own: bool  # whether the term is the word of the query, not an alternative
    slots: Sequence[int]
    weights: Sequence[float]


class ToolIndex:
    """Ranks tools by the words of a query.

    Attributes:
        is_complete: Whether all tools of the last `update` are indexed.
    """

    def __init__(self) -> None:
        self.is_complete = True
        self._tools: dict[str, IndexedTool] = {}  # by address
        self._slots: dict[str, int] = {}  # by address
        self._free: list[int] = []  # slots of removed tools
        self._addresses: list[str] = []  # by slot; "" for a free one
        self._names: list[frozenset[str]] = []  # by slot: the terms of the tool's name
        self._spelled: list[tuple[str, ...]] = []  # by slot: the words of which these are the terms
        self._servers: list[frozenset[str]] = []  # by slot: the terms of its server's name
        self._order: dict[str, int] = {}  # address -> position in the configuration
        # Term -> slots in ascending order, and the weight of the term in each
        self._postings: dict[str, tuple[array[int], array[float]]] = {}
        self._sorted: list[str] | None = None  # the terms, for look-ups by prefix

    def __len__(self) -> int:
        return len(self._tools)

    def replace(self, tools: Sequence[IndexedTool]) -> None:
        """Index these tools instead of all others; see `update`."""
        for _ in self.update(tools):
            pass

    def update(self, tools: Sequence[IndexedTool]) -> Iterator[None]:
        """Do what `replace` does in steps of a few milliseconds, and yield between them.

        Tools with an unchanged definition are not indexed again. Between two steps, searches find
        the tools that are indexed so far. A later update may begin before this one has finished,
        which must then not be continued.

        Args:
            tools: The tools in the order of the configuration.
        """
        self.is_complete = False
        self._order = {tool.address: position for position, tool in enumerate(tools)}
        removed = [address for address in self._tools if address not in self._order]
        for count, address in enumerate(removed, 1):
            self._remove(address)
            if count % STEP == 0:
                yield
        added = 0
        for position, tool in enumerate(tools, 1):
            before = self._tools.get(tool.address)
            if before != tool:
                if before is not None:
                    self._remove(tool.address)
                self._add(tool)
                added += 1
                if added % STEP == 0:
                    yield
            if position % 5_000 == 0:
                yield
        self.is_complete = True

    def _add(self, tool: IndexedTool) -> None:
        if self._free:
            slot = self._free.pop()
        else:
            slot = len(self._addresses)
            self._addresses.append("")
            self._names.append(_NO_TERMS)
            self._spelled.append(())
            self._servers.append(_NO_TERMS)
        names = name_terms(tool.name)
        for term, weight in _weights(tool).items():
            postings = self._postings.get(term)
            if postings is None:
                postings = self._postings[term] = array("I"), array("f")
                self._sorted = None
            slots, weights = postings
            position = bisect_left(slots, slot)
            slots.insert(position, slot)
            weights.insert(position, weight + _IN_NAME * (term in names))
        self._addresses[slot] = tool.address
        self._names[slot] = names or _NO_TERMS
        self._spelled[slot] = tuple(map(intern, _words(tool.name)))  # names share most words
        self._servers[slot] = name_terms(tool.server) or _NO_TERMS
        self._slots[tool.address] = slot
        self._tools[tool.address] = tool

    def _remove(self, address: str) -> None:
        slot = self._slots.pop(address)
        for term in _weights(self._tools.pop(address)):
            slots, weights = self._postings[term]
            position = bisect_left(slots, slot)
            del slots[position], weights[position]
            if not slots:
                del self._postings[term]
                self._sorted = None
        self._addresses[slot] = ""
        self._free.append(slot)

    # Searching

    def search(
        self, query: str, limit: int = 5, mask: Container[str] | None = None
    ) -> list[FoundTool]:
        """Return the tools that match a query best, the best first.

        The ranking is that of an index of the tools in `mask` alone.

        Args:
            query: Words about the tool. At most 1,000 characters and 64 words of it are read.
            limit: The most tools to return.
            mask: The addresses of the tools to search; None for all.
        """
        ranking = self._ranking(query, mask)
        words = ranking.terms
        if not words or limit < 1:
            return []
        for position, term in enumerate(words):
            self._match(term, 1 << position, ranking)
        scores = ranking.scores
        least = max(0.7 / MOST * nlargest(limit, scores)[-1], _TINY) if scores else _TINY
        ranked = [
            (-score * self._bonus(slot, words, ranking), self._order[self._addresses[slot]], slot)
            for slot, score in enumerate(scores)
            if score >= least
        ]
        found = []
        for _, _, slot in nsmallest(limit, ranked):
            bits = ranking.words[slot]
            matched = (word for place, word in enumerate(words.values()) if bits >> place & 1)
            found.append(FoundTool(self._addresses[slot], tuple(matched)))
        return found

    def matches(self, query: str, address: str) -> dict[str, dict[str, list[str]]]:
        """Return why a tool is found: the terms of the tool that each word of a query matches.

        Args:
            query: The query.
            address: The tool.

        Returns:
            By word of the query, and by term of the tool, the names of the fields that contain it.
        """
        fields: dict[str, list[str]] = {}
        for field, terms in _fields_of(self._tools[address]):
            for term in dict.fromkeys(terms):
                fields.setdefault(term, []).append(field.name)
        slot, ranking = self._slots[address], self._ranking(query, None)
        found = {}
        for term, word in ranking.terms.items():
            meanings = [each.term for each in self._meanings(term, ranking) if slot in each.slots]
            terms_found = {each: fields[each] for each in meanings}
            if terms_found:
                found[word] = terms_found
        return found

    def _bonus(self, slot: int, words: Mapping[str, str], ranking: _Ranking) -> float:
        """Return the factor for how much of the query and of the tool's names are matched.

        "Which branches exist?" matches tools that list, create and delete branches alike, so a
        question has a further factor for the tools that read.
        """
        names, servers, spelled = self._names[slot], self._servers[slot], self._spelled[slot]
        covered = ranking.covered[slot].bit_count() + len(names & ranking.fillers)
        same = sum(map(ranking.spelled.__contains__, spelled))
        return (
            (0.7 + 0.3 * ranking.words[slot].bit_count() / len(words))
            * (1 + 0.3 * covered / len(names))
            * (1 + SPELLED * same / max(len(spelled), 1))
            * (1 + 0.5 * len(servers & words.keys()) / len(servers))
            * (ANSWERS if ranking.is_question and names & _READING else 1.0)
        )

    def _match(self, term: str, bit: int, ranking: _Ranking) -> None:
        """Add the tools that match a word of the query; of all meanings, a tool gets the best."""
        best: dict[int, float] = {}
        rarest = 0.0  # the rarity of the word itself
        for hits in self._meanings(term, ranking):
            count = len(hits.slots)
            rarity = log(1 + (ranking.count - count + 0.5) / (count + 0.5))
            if hits.is_own:
                rarest = max(rarest, rarity)
            else:
                rarity = ALTERNATIVE * (min(rarity, rarest) if rarest else rarity)
            meaning = ranking.bit(hits.term)
            for slot, weight in zip(hits.slots, hits.weights, strict=True):
                score = rarity * weight
                if weight > _IN_NAME:
                    ranking.covered[slot] |= meaning
                    score -= rarity * _IN_NAME
                if score > best.get(slot, 0.0):
                    best[slot] = score
        scores, words = ranking.scores, ranking.words
        for slot, score in best.items():
            scores[slot] += score
            words[slot] |= bit

    def _ranking(self, query: str, mask: Container[str] | None) -> _Ranking:
        visible = self._visible(mask)
        return _Ranking(query, visible, frozenset().union(*{*compress(self._servers, visible)}))

    def _visible(self, mask: Container[str] | None) -> bytearray:
        """Return a byte for each slot: 1 if the search may find its tool."""
        if mask is None:
            return bytearray(address in self._order for address in self._addresses)
        return bytearray(address in mask and address in self._order for address in self._addresses)

    def _meanings(self, term: str, ranking: _Ranking) -> Iterator[_Hits]:
        """Yield the tools for each term that a query's term stands for.

        A term that no visible tool contains stands for the terms that begin with it, and for two
        terms that it joins. Each term also stands for the servers whose names begin with it.
        """
        hits = self._hits(term, ranking)
        if hits is not None:
            yield hits
        else:
            if len(term) >= MIN_PREFIX:
                yield from islice(self._prefixed(term, ranking), MAX_PREFIXED)
            yield from self._halves(term, ranking)
        others = [*_alternatives().get(term, ())]
        if len(term) >= MIN_SERVER:
            others += sorted(each for each in ranking.servers - {term} if each.startswith(term))
        for other in others:
            hits = self._hits(other, ranking, is_own=False)
            if hits is not None:
                yield hits

    def _hits(self, term: str, ranking: _Ranking, *, is_own: bool = True) -> _Hits | None:
        postings = self._postings.get(term)
        if postings is None:
            return None
        slots, weights = postings
        if ranking.count == len(ranking.visible):
            return _Hits(term, is_own, slots, weights)
        seen = [ranking.visible[slot] for slot in slots]
        if 1 not in seen:
            return None
        return _Hits(term, is_own, [*compress(slots, seen)], [*compress(weights, seen)])

    def _prefixed(self, beginning: str, ranking: _Ranking) -> Iterator[_Hits]:
        if self._sorted is None:
            self._sorted = sorted(self._postings)
        for position in range(bisect_left(self._sorted, beginning), len(self._sorted)):
            term = self._sorted[position]
            if not term.startswith(beginning):
                return
            hits = self._hits(term, ranking)
            if hits is not None:
                yield hits

    def _halves(self, term: str, ranking: _Ranking) -> Iterator[_Hits]:
        """Yield the tools that contain both halves of a compound, such as "mind" and "map"."""
        for place in range(MIN_HALF, len(term) - MIN_HALF + 1):
            halves = [self._hits(stem(each), ranking) for each in (term[:place], term[place:])]
            first, second = halves
            if first is None or second is None:
                continue
            both = frozenset(first.slots) & frozenset(second.slots)
            for each in (first, second) if both else ():
                pairs = zip(each.slots, each.weights, strict=True)
                kept = {slot: weight for slot, weight in pairs if slot in both}
                yield _Hits(each.term, True, [*kept], [*kept.values()])


# Words

_NO_TERMS = frozenset(("",))  # for a name without words, so that it can be divided by its length
_STOP_WORDS = frozenset(STOP_WORDS.split())

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_PLURAL = re.compile(r"(?<=[A-Z]{2})s(?![a-z])")  # of "PRs", which are not a "P" and "Rs"
_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(
    "([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002ffff]+)"
)
_VOWEL = re.compile(r"[aeiouy]")
_QUESTION = re.compile(rf"\s*(?:{'|'.join(QUESTIONS.split())})\b", re.IGNORECASE)


def _terms(text: str) -> list[str]:
    """Return the stems of all words of a text, in order."""
    return [stem(word) for word in _words(text)]


def _words(text: str) -> list[str]:
    text = _CAMEL.sub(" ", _PLURAL.sub("", text))
    if text.isascii():
        return _WORD.findall(text.lower())
    words: list[str] = []
    for word in _WORD.findall(fold(text)):
        if word.isascii():
            words.append(word)
        else:
            words += _split_cjk(word)
    return words


def fold(text: str) -> str:
    """Return a text without format characters, accents and case."""
    kept = "".join(each for each in text if unicodedata.category(each) != "Cf")
    decomposed = unicodedata.normalize("NFKD", kept)
    bare = "".join(each for each in decomposed if not unicodedata.combining(each))
    return unicodedata.normalize("NFKC", bare).casefold()


def _split_cjk(word: str) -> Iterator[str]:
    """Yield runs of Chinese, Japanese and Korean characters as pairs, and other runs whole."""
    for position, run in enumerate(_CJK.split(word)):
        if position % 2 == 0:
            if run:
                yield run
        elif len(run) == 1:
            yield run
        else:
            yield from (run[each : each + 2] for each in range(len(run) - 1))


def stem(word: str) -> str:
    """Return an English word without the endings of plurals and verbs, and without a final "e"."""
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        if word.endswith("ies") and len(word) > 4:
            word = word[:-3] + "y"
        elif word.endswith(("xes", "ches", "shes", "sses", "zes")):
            word = word[:-2]
        else:
            word = word[:-1]
    for ending in ("ing", "ed"):
        root = word[: -len(ending)]
        if word.endswith(ending) and len(root) > 2 and _VOWEL.search(root):
            doubled = root[-1] == root[-2] and root[-1] not in "lsz"
            word = root[:-1] if doubled else root
            break
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


@cache
def _alternatives() -> dict[str, tuple[str, ...]]:
    """Return the terms that a term stands for besides itself."""
    meant: dict[str, dict[str, None]] = {}
    for line in WORDS.strip().splitlines():
        before, _, said = line.partition(":")
        targets = _terms(before)
        for term in (*targets, *_terms(said)):
            meant.setdefault(term, {}).update(dict.fromkeys(targets))
    return {
        term: tuple(other for other in others if other != term) for term, others in meant.items()
    }


def name_terms(name: str) -> frozenset[str]:
    """Return the terms of a name."""
    return frozenset(_terms(name))


_READING = name_terms(READING)


def query_terms(query: str) -> dict[str, str]:
    """Return the terms of a query without stop words, and the word for each.

    Numbers are left out unless there is nothing else, because they are usually arguments.
    """
    return _telling(_query_words(query))


def _query_words(query: str, servers: frozenset[str] = _NO_TERMS) -> list[str]:
    """Return the words of a query; two that are a server's name together, as "GitHub", are one."""
    words: list[str] = []
    for word in _words(query[:MAX_QUERY]):
        if words and stem(words[-1] + word) in servers:
            words[-1] += word
        else:
            words.append(word)
    return words


def _telling(words: Sequence[str]) -> dict[str, str]:
    kept = [word for word in words if word not in _STOP_WORDS]
    telling = [word for word in kept if not word.isdecimal()] or kept
    terms: dict[str, str] = {}
    for word in telling:
        if len(terms) < MAX_WORDS:
            terms.setdefault(stem(word), word)
    return terms


def _weights(tool: IndexedTool) -> dict[str, float]:
    """Return the weight of each term of a tool, from 0 to 1."""
    sums: dict[str, float] = {}
    for field, terms in _fields_of(tool):
        scale = field.weight / (1 - field.length + field.length * len(terms) / field.average)
        counts: dict[str, int] = {}
        for term in terms:
            counts[term] = counts.get(term, 0) + 1
        for term, count in counts.items():
            sums[term] = sums.get(term, 0.0) + scale * min(count, MAX_COUNT)
    return {term: value / (K1 + value) for term, value in sums.items()}


def _fields_of(tool: IndexedTool) -> Iterator[tuple[_Field, list[str]]]:
    """Yield each field that has terms, with its terms in order."""
    parameters, descriptions = _parameter_texts(tool.input_schema)
    texts = (tool.name, tool.server, tool.title, tool.description, parameters, descriptions)
    for field, text in zip(_FIELDS, texts, strict=True):
        terms = _terms(text[: field.limit])
        if terms:
            yield field, terms


def _parameter_texts(input_schema: JsonObject) -> tuple[str, str]:
    """Return the names of a schema's parameters, and their descriptions and permitted values."""
    names: list[str] = []
    descriptions: list[str] = []
    for name, parameter in _parameters(input_schema):
        names.append(name)
        description, values = parameter.get("description"), parameter.get("enum")
        if isinstance(description, str):
            descriptions.append(description)
        if isinstance(values, list):
            descriptions += (each for each in values if isinstance(each, str))
    return " ".join(names), " ".join(descriptions)


def _parameters(input_schema: JsonObject) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield parameters in two levels, at most `MAX_PARAMETERS`."""
    left, level = MAX_PARAMETERS, [input_schema]
    for _ in range(2):
        inner: list[JsonObject] = []
        for each in level:
            properties = each.get("properties")
            for name, parameter in properties.items() if isinstance(properties, dict) else ():
                if left == 0:
                    return
                left -= 1
                if isinstance(parameter, dict):
                    yield name, parameter
                    items = parameter.get("items")
                    inner.append(items if isinstance(items, dict) else parameter)
        level = inner
