"""Ranks the tools for a request by the words and the values in the request."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct

from interlock.models.local.filling import Filling, InputProperty, fill, parameters
from interlock.models.local.spans import Span, find_spans
from interlock.models.local.words import CHANGING, COMMON, bag, similarity, stems
from interlock.models.model import ToolDefinition


class RankedTool(Struct, frozen=True):
    """A tool with the words of its definition."""

    definition: ToolDefinition
    title: str  # its name without the server's
    summary: str  # first line of the description
    parameters: tuple[InputProperty, ...]
    name: tuple[str, ...]  # stems of its name without the server's
    summary_words: tuple[str, ...]
    fields: dict[str, float]  # stem -> weight of the best place it occurs in
    vocabulary: frozenset[str]


class Candidate(Struct, frozen=True):
    """A tool with its arguments from a request. `score` is comparable between requests."""

    tool: RankedTool
    filling: Filling
    score: float
    full_score: float  # the score if no argument were missing


class Weights(Struct, frozen=True):
    """The weights of the score's parts.

    Fitted on the tuning half of `benchmarks/embedded_model_cases.json` and on requests for some
    thirty tools of other kinds.
    """

    # the place in a tool where a word of the request occurs
    name: float = 1.0
    summary: float = 0.8
    rest: float = 0.5
    parameter: float = 0.5
    server: float = 0.4
    # parts of the score
    precision: float = 0.6  # the share of the tool's name or summary that is in the request
    verb: float = 0.25  # the request starts with the tool's action
    value: float = 0.4  # a value of the request that the tool accepts
    unused: float = 0.25  # a value of the request that the tool does not accept
    guessed: float = 0.3  # an argument that is only a leftover word
    assumed: float = 0.4
    missing: float = 1.0
    missing_text: float = 0.5
    knowledge: float = 0.5  # asks what, why or who about the world
    changing: float = 1.0  # a changing tool without a clear request for its action
    common: float = 0.2  # rarity of words such as "show"


WEIGHTS = Weights()
UNDERSTOOD = 0.45  # the share of a request that must be about a tool that changes something
LONGEST = 1_000  # characters of a request that are read
_KNOWLEDGE = re.compile(
    r"(?:what (?:is|are|was) an?\b|why\b|who(?:se|m)?\b|how (?:do|does|did|to|can|come)\b|explain\b"
    r"|define\b|.*\bdoes\b.*\bmean\b|.*\bmeaning of\b|where\b|tell me about\b"
    r"|in (?:one|a few|two) (?:sentence|word)s?\b)",
    re.IGNORECASE,
)
_LOOK = re.compile(
    r"(?>(?:please |(?:can|could|will|would) you )*)(?:show|list|get|display|view|see|tell|read"
    r"|print|compare|what|which|how|is|are|was|were|am|does|do|did|has|have|had|who|whose|where"
    r"|when|why|any|will|should|must|may)\b",
    re.IGNORECASE,
)
# Kinds of values that rarely occur by accident.
DEFINITE = bag("zone clock date url email path number expression sql quoted")


class ToolRanking:
    """The tools of a conversation, indexed by their words."""

    def __init__(self, tools: Sequence[ToolDefinition]) -> None:
        self.tools = [_indexed(tool) for tool in tools]
        self._rarity: dict[str, float] = {}

    def rank(self, request: str) -> list[Candidate]:
        """Return every tool with its score, best first; equal scores keep the tools' order."""
        request = request[:LONGEST]
        spans = find_spans(request)
        candidates = [self._weigh(request, spans, tool) for tool in self.tools]
        return sorted(candidates, key=lambda candidate: -candidate.score)

    def _weigh(self, request: str, spans: list[Span], tool: RankedTool) -> Candidate:
        filling = fill(request, spans, tool.parameters, tool.vocabulary)
        words = stems(_without(request, filling.spans))
        coverage = self._coverage(words, filling, tool)
        score = coverage + self._word_score(words, tool) + _value_score(spans, filling)
        if _KNOWLEDGE.match(request) and filling.value < 0.4:
            score -= WEIGHTS.knowledge
        if CHANGING & {*tool.name[:1], *tool.summary_words[:1]}:
            if _LOOK.match(request):
                score = 0.0
            elif coverage < UNDERSTOOD:
                score -= WEIGHTS.changing
        return Candidate(tool, filling, score - _missing_penalty(filling), score)

    def _coverage(self, words: list[str], filling: Filling, tool: RankedTool) -> float:
        """Return the share of the request that is about the tool."""
        # A value of a kind that the tool accepts counts like a word.
        value = min(1.0, filling.value)
        # The minimum keeps a single path or number from scoring as a whole request.
        total = max(0.8, sum(map(self._rare, words)) + value)
        covered = sum(self._rare(word) * _found(word, tool.fields) for word in words) + value
        return covered / total

    def _word_score(self, words: list[str], tool: RankedTool) -> float:
        """Return the share of the tool's name or summary that is in the request."""
        precision = max(
            self._share(own, words) * weight
            for own, weight in ((tool.name, 1.0), (tool.summary_words, 0.9))
        )
        verb = max(
            (
                _same_verb(words[0], own[0])
                for own in (tool.name, tool.summary_words)
                if own and words
            ),
            default=0.0,
        )
        return WEIGHTS.precision * precision + WEIGHTS.verb * verb

    def _share(self, own: Sequence[str], words: Sequence[str]) -> float:
        """Return the share of a tool's `own` words in the request, weighted by rarity."""
        # The minimum keeps a tool named only "show" from matching every such request.
        total = max(0.6, sum(map(self._rare, own)))
        return sum(self._rare(word) * _nearest(word, words) for word in own) / total

    def _rare(self, word: str) -> float:
        """Return a word's rarity: 1 if at most one tool has it, less for common words."""
        if word not in self._rarity:
            having = sum(_found(word, tool.fields) for tool in self.tools)
            most = math.log(1 + len(self.tools)) or 1.0
            rarity = max(0.1, 1.0 - math.log(max(1.0, having)) / most)
            self._rarity[word] = min(rarity, WEIGHTS.common) if word in COMMON else rarity
        return self._rarity[word]


def _indexed(tool: ToolDefinition) -> RankedTool:
    server, _, name = tool.name.rpartition("__")
    summary, _, rest = tool.description.strip().partition("\n")
    summary = summary[:300]
    try:
        schema = msgspec.json.decode(tool.input_schema, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        schema = {}
    wanted = tuple(parameters(schema))
    own = [word for word in stems(name) if word not in stems(server)]
    places = [
        (WEIGHTS.server, stems(server)),
        (WEIGHTS.rest, stems(rest[:500])),
        (WEIGHTS.parameter, [word for parameter in wanted for word in parameter.words]),
        (WEIGHTS.summary, stems(summary)),
        (WEIGHTS.name, own),
    ]
    fields: dict[str, float] = {}
    for weight, words in places:
        fields.update((word, max(weight, fields.get(word, 0.0))) for word in words)
    return RankedTool(
        tool,
        name,
        summary,
        wanted,
        tuple(dict.fromkeys(own or stems(server))),
        tuple(dict.fromkeys(stems(summary))),
        fields,
        frozenset([*own, *stems(summary)]),
    )


def _found(word: str, fields: dict[str, float]) -> float:
    return max((weight * similarity(word, other) for other, weight in fields.items()), default=0.0)


def _same_verb(one: str, other: str) -> float:
    alike = similarity(one, other)
    return alike if alike == 1.0 or one not in COMMON else alike / 2


def _nearest(word: str, others: Sequence[str]) -> float:
    return max((similarity(word, other) for other in others), default=0.0)


def _value_score(spans: Sequence[Span], filling: Filling) -> float:
    definite = [span for span in spans if span.kind in DEFINITE]
    unused = sum(1 for span in definite if not _covered(span, filling.spans))
    return (
        WEIGHTS.value * min(1.5, filling.value)
        - WEIGHTS.unused * unused
        - WEIGHTS.guessed * filling.guesses
        - WEIGHTS.assumed * len(filling.assumed)
    )


def _missing_penalty(filling: Filling) -> float:
    text = sum(1 for parameter in filling.missing if parameter.kind == "text")
    return WEIGHTS.missing_text * text + WEIGHTS.missing * (len(filling.missing) - text)


def _covered(span: Span, used: Sequence[Span]) -> bool:
    return any(span.start < other.end and other.start < span.end for other in used)


def _without(request: str, spans: Sequence[Span]) -> str:
    for span in spans:
        request = request[: span.start] + " " * (span.end - span.start) + request[span.end :]
    return re.sub(r" {2,}", " ", request)
