"""Compares the words in requests with the words in tool descriptions."""

from __future__ import annotations

import functools
import re


def bag(text: str) -> frozenset[str]:
    """Return the words of `text`, split at whitespace."""
    return frozenset(text.split())


# Words that do not distinguish requests.
_IDLE = bag(
    """a an the this that these those it its is are was were be been am do does did done have has
    had will would can could shall should may might must of in on at to for from by with as and or
    not no nor but if then than so too very just please i me my mine we us our you your he she they
    them their his her what which who whom whose when where why how there here hi hello hey let s t
    re ve ll d m right now yet up out about into any some all each other using use used given via
    e g eg ie etc per many much know want need like think really maybe actually whether
    going still again anything something nothing someone somebody anyone"""
)
# Words of parameter names that describe the form of a value, not its meaning.
GENERIC = bag("name id type value text string path title code key")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_NEGATED = re.compile(r"\b(?:not|n't)\s+(?:yet\s+|been\s+)*(\w+ed)\b")
_SUFFIXES = re.findall(
    r"\w+",
    "ization ational ations ation izes izing ized ities ments ment ness able ings ing ers edly "
    "ied ies ves ed es ly er ors or s e y",
)

# Groups of similar words: a request to "show" something matches a tool that "gets" it.
_ALIKE = [
    "show get view display print see fetch retrieve return",
    "show list",
    "show read",
    "tell give get",
    "create make new add build generate",
    "delete remove drop erase",
    "calculate compute evaluate calculation",
    "find search look locate query",
    "write save store record put",
    "change switch modify update set edit",
    "switch turn",
    "compare difference diff differ",
    "folder directory",
    "send post deliver",
    "begin start run execute launch",
    "end stop terminate kill close",
    "undo revert reset restore",
    "big large size",
    "current currently",
    "history log",
    "time clock hour",
    "mean average",
    "differentiate derivative",
    "price cost",
    "mail email",
    "picture image photo",
    "page site website",
    "problem error issue bug",
    "word term text",
    "appointment event meeting",
    "repository repo project",
]


@functools.lru_cache(4096)
def _stem(word: str) -> str:
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            word = word[: -len(suffix)]
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiousl":
        word = word[:-1]
    return word


def stems(text: str, *, keep_all: bool = False) -> list[str]:
    """Return the stems of the words in `text`, in order; without idle words unless `keep_all`."""
    text = _NEGATED.sub(r"un\1", text)
    words = [word.lower() for word in _WORD.findall(text)]
    return [
        _stem(word) if not keep_all else word if word in _IDLE else _stem(word)
        for word in words
        if keep_all or word not in _IDLE
    ]


_GROUPS: dict[str, set[int]] = {}
for _number, _row in enumerate(_ALIKE):
    for _each in _row.split():
        _GROUPS.setdefault(_stem(_each), set()).add(_number)
CHANGING = frozenset(
    map(
        _stem,
        bag(
            "create make add delete remove drop erase write save store record put change switch "
            "modify update set edit send move rename commit kill close reset undo revert cancel "
            "buy pay stop restart enable disable approve reject archive merge publish upload "
            "install uninstall transfer"
        ),
    )
)
ACTIONS = frozenset(_GROUPS)
# Actions that most tools perform, so they hardly distinguish tools.
COMMON = frozenset(map(_stem, bag("say show get view display print see fetch list read tell give")))


_NONE: set[int] = set()


@functools.lru_cache(16384)
def similarity(one: str, other: str) -> float:
    """Return the similarity of two stems, from 0 (unrelated) to 1 (equal)."""
    if one == other:
        return 1.0
    if _GROUPS.get(one, _NONE) & _GROUPS.get(other, _NONE):
        return 0.6
    common = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        common += 1
    longest = max(len(one), len(other))
    return 0.9 * common / longest if common >= 4 and common / longest > 0.4 else 0.0
