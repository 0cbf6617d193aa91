"""Search for a tool's arguments in the words of a request.

Each parameter has a kind (path, number, time zone, …), derived from its schema. Each piece of the
request that looks like a value is a `Span`. `fill` assigns spans to parameters by kind, by the
words around the span, and by order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from interlock.models.local.spans import Span, as_number
from interlock.models.local.words import ACTIONS, GENERIC, bag, stems


class InputProperty(Struct, frozen=True):
    """One property of a tool's input schema.

    `kind` is "number", "boolean", "list", "choice" or a kind of text: "zone", "clock", "date",
    "url", "email", "path", "expression", "sql" or "text".
    """

    name: str
    kind: str
    required: bool
    words: frozenset[str]  # stems of its name
    choices: tuple[Any, ...] = ()
    default: Any = None  # from the schema or the description
    integer: bool = False
    shaped: bool = False  # a text that is described as "owner/name"
    item: InputProperty | None = None  # the items of a list


class Filling(Struct, frozen=True):
    """The arguments for a tool in a request.

    Attributes:
        arguments: Values by parameter.
        spans: The parts of the request that these values come from.
        value: A score from 0: how strongly the values suggest this tool. A value of a rare kind,
            such as a URL, counts most if the parameter expects this kind.
        missing: Required parameters without a value.
        assumed: Required parameters that got a value which is not in the request: "." for a
            path, the first of several choices.
        guesses: The number of arguments that got an unused word of the request for want of better.
        further: Arguments of further calls, one for each other value of a list, such as "Paris" in
            "in Tokyo and in Paris".
    """

    arguments: dict[str, Any]
    spans: tuple[Span, ...]
    value: float
    missing: tuple[InputProperty, ...]
    assumed: tuple[InputProperty, ...]
    guesses: int
    further: tuple[dict[str, Any], ...] = ()


# By kind of parameter: the kinds of spans it accepts, and how well they fit.
FITS: dict[str, dict[str, float]] = {
    "zone": {"zone": 1.0},
    "clock": {"clock": 1.0},
    "date": {"date": 1.0},
    "url": {"url": 1.0, "path": 0.3},
    "email": {"email": 1.0},
    "path": {"path": 1.0, "quoted": 0.6, "identifier": 0.3},
    "number": {"number": 1.0},
    "expression": {"expression": 1.0, "quoted": 0.8, "number": 0.2},
    "sql": {"sql": 1.0, "quoted": 0.6},
    "hash": {
        "hash": 1.0,
        "quoted": 0.8,
        "following": 0.8,
        "identifier": 0.7,
        "name": 0.4,
        "object": 0.35,
    },
    "text": {
        "quoted": 0.9,
        "following": 0.8,
        "identifier": 0.7,
        "preceding": 0.6,
        "name": 0.5,
        "hash": 0.4,
        "zone": 0.4,
        "object": 0.35,
        "path": 0.3,
        "email": 0.3,
        "url": 0.3,
        "date": 0.3,
        "clock": 0.3,
        "number": 0.3,
        "expression": 0.2,
        "word": 0.15,
    },
}
FROM = frozenset(stems("source src origin old base start first lower begin")) | {"from", "since"}
TO = frozenset(stems("target destination dest dst new end upper")) | {"to", "until", "into"}
# The evidence that a value of a kind gives for a tool with a parameter of this kind.
TELLING = {
    "zone": 1.0,
    "url": 1.0,
    "email": 1.0,
    "sql": 1.0,
    "expression": 1.0,
    "clock": 1.0,
    "date": 0.7,
    "hash": 0.7,
    "path": 0.4,
    "number": 0.4,
    "json": 1.0,
    "choice": 0.4,
    "assignment": 0.4,
    "quoted": 0.4,
}
COUNTS = bag("count limit max number n")
COUNTED = bag("last first top latest recent next")
FILES = frozenset(stems("file folder directory path document"))
GUESS = 0.34  # a text that fits less than this is a guess
_MAX_LENGTH = 1_000  # characters of a description that are read
_LISTED = re.compile(
    r"\s*(?:,|,?\s*(?:and|or|und|oder|et|ou|y|o)\b)\s*(?:(?:in|of|for|at|à|en|de)\s+)?",
    re.IGNORECASE,
)
_PAIR = re.compile(r"\b(?:between|from|compare|zwischen|von|entre|de)\s+$", re.IGNORECASE)
_NAMES = bag("name object zone")  # kinds that the same word may have
CERTAIN = 0.85  # an optional parameter is only filled with a span that fits better than this


# Schema -> parameters


def parameters(schema: dict[str, Any]) -> list[InputProperty]:
    """Return the properties of an object schema, in order; empty for other schemas."""
    properties = schema.get("properties")
    required = schema.get("required")
    if not isinstance(properties, dict):
        return []
    names = required if isinstance(required, list) else []
    return [
        _parameter(name, property, name in names)
        for name, property in properties.items()
        if isinstance(property, dict)
    ]


def _parameter(name: str, schema: dict[str, Any], required: bool) -> InputProperty:
    schema = _without_null(schema)
    description = str(schema.get("description", ""))[:_MAX_LENGTH]
    words = frozenset(stems(name, keep_all=True))
    choices = _choices(schema, description)
    kind = _kind(schema, words, description, bool(choices))
    item = schema.get("items")
    flat = kind == "list" and isinstance(item, dict) and item.get("type") != "array"
    return InputProperty(
        name,
        kind,
        required,
        words,
        choices,
        schema.get("default", _default_in(description)),
        schema.get("type") == "integer",
        re.search(r"\b(?!and/or)[a-z]+/[a-z]+\b", description) is not None,
        _parameter(name, item, True) if flat and isinstance(item, dict) else None,
    )


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    for keyword in ("anyOf", "oneOf"):
        alternatives = schema.get(keyword)
        if isinstance(alternatives, list):
            for alternative in alternatives:
                if isinstance(alternative, dict) and alternative.get("type") != "null":
                    return {**schema, **alternative}
    type = schema.get("type")
    if isinstance(type, list):
        return {**schema, "type": next((one for one in type if one != "null"), "string")}
    return schema


def _kind(schema: dict[str, Any], words: frozenset[str], description: str, choice: bool) -> str:
    if choice:
        return "choice"
    type = schema.get("type")
    if type in ("integer", "number"):
        return "number"
    if type in ("boolean", "array", "object"):
        return {"boolean": "boolean", "array": "list", "object": "object"}[str(type)]
    format = schema.get("format")
    formats = {"uri": "url", "email": "email", "date": "date", "date-time": "date", "time": "clock"}
    if format in formats:
        return formats[str(format)]
    return _text_kind(words, description)


_KINDS = (
    ("zone", "timezone tz zone", r"time ?zones?\b|\bIANA\b"),
    ("url", "url uri link href", r"\bURLs?\b|\bURI\b"),
    ("email", "email mail", r"\be-?mail address"),
    ("sql", "sql", r"\bSQL\b"),
    ("date", "date timestamp datetime day", r"YYYY-MM-DD|\bISO 8601\b|\btimestamp\b"),
    ("hash", "revision sha hash commit ref digest checksum", r"\b(?:sha|hash|revision)\b"),
    ("clock", "time", r"\bHH:MM\b"),
    ("expression", "expression equation formula expr", r"mathematical expression"),
    (
        "path",
        "path file filename filepath dir directory folder cwd",
        r"\bpath\b|\b(?:file|folder|directory) name",
    ),
)


def _text_kind(words: frozenset[str], description: str) -> str:
    for kind, names, _ in _KINDS:
        if words & set(stems(names)):
            return kind
    for kind, _, pattern in _KINDS:
        if re.search(pattern, description, re.IGNORECASE):
            return kind
    return "text"


def _choices(schema: dict[str, Any], description: str) -> tuple[Any, ...]:
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return tuple(values)
    if schema.get("type", "string") != "string" or re.search(
        r"e\.g\.|such as|example|accepts", description, re.IGNORECASE
    ):
        return ()
    # Some servers list the values in the description: "local branches ('local') or all ('all')".
    quoted = re.findall(r"['\"`]([a-z][a-z_-]*)['\"`]", description)
    return tuple(dict.fromkeys(quoted)) if len(set(quoted)) > 1 else ()


def _default_in(description: str) -> str | None:
    match = re.search(
        r"\buse ['\"`]([^'\"`]+)['\"`][^.]*\b(?:if|when|unless)\b"
        r"|\bdefaults? (?:to|is) ['\"`]([^'\"`]+)['\"`]",
        description,
        re.IGNORECASE,
    )
    return (match.group(1) or match.group(2)) if match else None


# Request -> arguments


def fill(
    request: str,
    spans: Sequence[Span],
    wanted: Sequence[InputProperty],
    vocabulary: frozenset[str] = frozenset(),
) -> Filling:
    """Assign each parameter the span that fits it best, and each span to one parameter at most.

    Args:
        request: The user's text.
        spans: The result of `find_spans` for it.
        wanted: The tool's parameters.
        vocabulary: Stems of the tool's name and description. Such words in the request are
            about the tool and rarely arguments.
    """
    draft = _Draft(request, spans)
    for parameter in wanted:
        draft.fill_alone(parameter)
    offers = []
    for number, parameter in enumerate(wanted):
        for place, span in enumerate([*spans, *_words(request, parameter, vocabulary)]):
            fit = _fit(request, span, parameter, spans)
            if span.kind in ("object", "name", "word") and vocabulary & set(stems(str(span.value))):
                fit -= 0.3
            if span.kind == "path" and parameter.kind == "text" and vocabulary & FILES:
                fit += 0.1  # no guess: "source" and "destination" of a tool that moves files
            if fit > (0.0 if parameter.required else CERTAIN):
                offers.append((fit, -number, -place, parameter, span))
    for fit, _, _, parameter, span in sorted(offers, key=lambda offer: offer[:3], reverse=True):
        draft.offer(parameter, span, fit)
    return draft.finish(wanted)


class _Draft:
    """A filling that is being built."""

    def __init__(self, request: str, spans: Sequence[Span]) -> None:
        self.request = request
        self.spans = spans
        self.arguments: dict[str, Any] = {}
        self.singles: dict[str, Span] = {}
        self.used: list[Span] = []
        self.value = 0.0
        self.guesses = 0

    def free(self, span: Span) -> bool:
        return not any(span.start < other.end and other.start < span.end for other in self.used)

    def assign(self, parameter: InputProperty, argument: Any, value: float, *spans: Span) -> None:
        self.arguments[parameter.name] = argument
        self.used.extend(spans)
        self.value += value

    def fill_alone(self, parameter: InputProperty) -> None:
        """Fill a parameter that competes with no other one: assigned, a choice, or a list."""
        if parameter.kind == "number":
            self._fill_named(parameter)
        elif parameter.kind == "choice":
            found = (_find_choice(choice, self.request) for choice in parameter.choices)
            span = next((span for span in found if span and self.free(span)), None)
            if span:
                self.assign(parameter, span.value, TELLING["choice"], span)
        elif parameter.kind in ("list", "object"):
            type = list if parameter.kind == "list" else dict
            literals = (s for s in self.spans if isinstance(s.value, type) and self.free(s))
            if span := next(literals, None):
                self.assign(parameter, span.value, TELLING["json"], span)
            elif parameter.item and parameter.required:
                self._collect(parameter, parameter.item)

    def _fill_named(self, parameter: InputProperty) -> None:
        """Fill a parameter whose number is given by name: "a = 3"."""
        pattern = rf"(?<!\w){re.escape(parameter.name)}\s*=\s*(-?\d+(?:\.\d+)?)"
        match = re.search(pattern, self.request, re.IGNORECASE)
        if match:
            span = Span("assignment", *match.span(), match.group())
            self.assign(parameter, as_number(match.group(1)), TELLING["assignment"], span)

    def _collect(self, parameter: InputProperty, item: InputProperty) -> None:
        """Fill a list with the spans that fit its items best."""
        fits = FITS.get(item.kind, {})
        free = [s for s in self.spans if self.free(s) and _is_number(s, item)]
        best = max((fits.get(span.kind, 0.0) for span in free), default=0.0)
        chosen = [span for span in free if best and fits.get(span.kind) == best]
        if item.kind == "path":
            # An absolute path is the folder of the files, for another parameter.
            chosen = [span for span in chosen if not _absolute(span)] or chosen
        if chosen:
            # Three numbers in a row rarely occur by accident.
            value = TELLING.get(item.kind, 0.0) * (2 if len(chosen) > 2 else 1)
            self.assign(parameter, [span.value for span in chosen], value, *chosen)

    def offer(self, parameter: InputProperty, span: Span, fit: float) -> None:
        if parameter.name in self.arguments or not self.free(span):
            return
        if parameter.kind == "text" and self._continues_a_list(parameter, span):
            return
        written = self.request[span.start : span.end]
        argument, value = self._argument(parameter, span), 0.0
        if parameter.kind == "text" and span.kind != "quoted":
            self.guesses += fit < GUESS
        if span.kind == "zone" and parameter.kind == "zone" and "/" not in written:
            value = 0.3  # the name of a city may also be a plain word
        elif span.kind in (parameter.kind, "quoted"):
            value = TELLING.get(span.kind, 0.0)
            if any(other.kind == span.kind for other in self.used):
                value /= 4  # a second value of its kind adds little
        self.assign(parameter, argument, value, span)
        self.singles[parameter.name] = span

    def _argument(self, parameter: InputProperty, span: Span) -> Any:
        # For a text parameter "255" stays a text.
        as_written = parameter.kind == "text" and span.kind != "quoted"
        return self.request[span.start : span.end] if as_written else span.value

    def _further(self, parameter: InputProperty) -> list[dict[str, Any]]:
        """Return the arguments of calls with the values listed after that of `parameter`."""
        last = self.singles.get(parameter.name)
        found = []
        for span in self.spans:
            if (
                last
                and span.start >= last.end
                and (span.kind == last.kind or {span.kind, last.kind} <= _NAMES)
                and self.free(span)
                and _LISTED.fullmatch(self.request, last.end, span.start)
            ):
                found.append({**self.arguments, parameter.name: self._argument(parameter, span)})
                self.used.append(last := span)
        return found

    def _continues_a_list(self, parameter: InputProperty, span: Span) -> bool:
        """Return whether a name follows one that another parameter has: "to Anna and Peter"."""
        return any(
            other.kind in _NAMES
            and other.end <= span.start
            and name != parameter.name
            and _LISTED.fullmatch(self.request, other.end, span.start)
            and not _PAIR.search(self.request, 0, other.start)
            for name, other in self.singles.items()
        )

    def finish(self, wanted: Sequence[InputProperty]) -> Filling:
        missing, assumed = [], []
        for parameter in wanted:
            if parameter.name in self.arguments or not parameter.required:
                continue
            default = _default(parameter)
            if default is None:
                missing.append(parameter)
                continue
            self.arguments[parameter.name] = default
            if parameter.default is None:
                assumed.append(parameter)
        further = [arguments for parameter in wanted for arguments in self._further(parameter)]
        return Filling(
            _ordered(self.arguments, wanted),
            tuple(self.used),
            self.value,
            tuple(missing),
            tuple(assumed),
            self.guesses,
            tuple(_ordered(each, wanted) for each in further),
        )


def _ordered(arguments: dict[str, Any], wanted: Sequence[InputProperty]) -> dict[str, Any]:
    return {each.name: arguments[each.name] for each in wanted if each.name in arguments}


def _default(parameter: InputProperty) -> Any:
    if parameter.default is not None:
        return parameter.default
    if parameter.kind == "choice":
        return parameter.choices[0]
    return {"path": ".", "boolean": False}.get(parameter.kind)


def _find_choice(choice: Any, request: str) -> Span | None:
    lowered, word = request.lower(), str(choice).lower()
    start = lowered.find(word) if word else -1
    while start >= 0:
        end = start + len(word)
        if not (lowered[:start][-1:].isalnum() or lowered[end : end + 1].isalnum()):
            return Span("choice", start, end, choice)
        start = lowered.find(word, start + 1)
    return None


def _fit(request: str, span: Span, parameter: InputProperty, spans: Sequence[Span]) -> float:
    fits = FITS.get(parameter.kind, {}).get(span.kind, 0.0)
    if parameter.kind == "text" and span.kind == "path" and parameter.shaped:
        fits = 1.0
    if not fits or not _is_number(span, parameter):
        return 0.0
    cue = _cue(request, span, parameter)
    if parameter.kind == "path" and _absolute(span) and sum(s.kind == "path" for s in spans) > 1:
        cue += 0.2  # among several paths, the absolute one is the folder of the others
    if not parameter.required and not cue and parameter.kind in ("number", "path", "text"):
        return 0.0  # such values are common, so the request must mention the parameter
    return fits + cue


def _cue(request: str, span: Span, parameter: InputProperty) -> float:
    """Return the evidence for `parameter` in the words around `span`."""
    before = stems(request[max(0, span.start - 40) : span.start], keep_all=True)[-3:]
    after = stems(request[span.end : span.end + 25], keep_all=True)[:1]
    telling = parameter.words - GENERIC
    cue = 0.0
    if named := telling & set(before):
        cue += 0.4 + 0.1 * len(named)
    if (telling - FROM - TO) & set(after):
        cue += 0.4
    if before and before[-1] in ("from", "between", "since") and parameter.words & FROM:
        cue += 0.5
    if before and before[-1] in ("to", "into", "until") and parameter.words & TO:
        cue += 0.4
    if parameter.words & COUNTS and COUNTED & set(before[-2:]):
        cue += 0.5
    return cue


def _is_number(span: Span, parameter: InputProperty) -> bool:
    return isinstance(span.value, int) or not parameter.integer


def _words(request: str, parameter: InputProperty, vocabulary: frozenset[str]) -> list[Span]:
    """Return plain words that may be a text.

    They stand after the parameter's name ("table customers", "branch called develop") or before
    it ("the develop branch"), or are not in the tool's definition.
    """
    if parameter.kind not in ("text", "hash"):
        return []
    found = []
    for match in re.finditer(r"[A-Za-z]+", request):
        own = set(stems(match.group()))
        if own & (parameter.words - GENERIC):
            value = _CALLED.match(request, match.end())
            if value is not None and stems(value.group(1)):
                found.append(Span("following", *value.span(1), value.group(1)))
            before = _BEFORE.search(request, 0, match.start())
            if before is not None and not set(stems(before.group(1))) & (vocabulary | ACTIONS):
                found.append(Span("preceding", *before.span(1), before.group(1)))
        elif own and not own & (vocabulary | ACTIONS) and parameter.required and match.start() > 0:
            found.append(Span("word", *match.span(), match.group()))
    return found


_BEFORE = re.compile(r"\bthe ([a-z][\w.-]*) $")
_CALLED = re.compile(r"\s+(?:(?:called|named|titled|is)\s+)?([A-Za-z][\w.-]*\w)")


def _absolute(span: Span) -> bool:
    return isinstance(span.value, str) and span.value.startswith(("/", "~", ".", "C:", "D:"))
