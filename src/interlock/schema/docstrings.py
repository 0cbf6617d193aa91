"""Docstrings of functions, in Google, NumPy or reST style: the summary, and texts of arguments."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Any

_SECTION = re.compile(
    r"^[ \t]*(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?)[ \t]*:?[ \t]*$"
    r"|^[ \t]*:(?:param|returns?|raises)\b",
    re.MULTILINE,
)
_GOOGLE_LIST = re.compile(
    r"^[ \t]*(?:Args|Arguments)[ \t]*:[ \t]*\n((?:[ \t]+\S.*\n?|[ \t]*\n)+)", re.MULTILINE
)
_GOOGLE_ITEM = re.compile(r"^([ \t]+)(\w+)(?:[ \t]*\([^)\n]*\))?[ \t]*:[ \t]*(.*)$")
_REST_ITEM = re.compile(
    r"^[ \t]*:param(?:[ \t]+[^:\n]+?)?[ \t]+(\w+)[ \t]*:[ \t]*(.+(?:\n[ \t]+[^:\s].*)*)$",
    re.MULTILINE,
)
_NUMPY_LIST = re.compile(
    r"^Parameters[ \t]*\n-{3,}[ \t]*\n((?:(?!.*\n-{3,}[ \t]*$).*\n)*)", re.MULTILINE
)
_NUMPY_ITEM = re.compile(
    r"^(\w+(?:, \w+)*)[ \t]*(?::.*)?\n((?:[ \t]+\S.*\n|[ \t]*\n)+)", re.MULTILINE
)


def summary(function: Callable[..., Any]) -> str:
    """Return the docstring up to its list of arguments, as a description for models."""
    return _SECTION.split(_doc(function), maxsplit=1)[0].strip()


def argument_texts(function: Callable[..., Any]) -> dict[str, str]:
    """Return the texts of the docstring about parameters, by their names."""
    doc = _doc(function)
    texts = {name: " ".join(text.split()) for name, text in _REST_ITEM.findall(doc)}
    numpy = _NUMPY_LIST.search(doc + "\n")
    for names, text in _NUMPY_ITEM.findall(numpy[1] + "\n") if numpy else ():
        texts.update(dict.fromkeys(names.split(", "), " ".join(text.split())))
    found = _GOOGLE_LIST.search(doc + "\n")
    current, indent = "", 0
    for line in found[1].splitlines() if found else ():
        item = _GOOGLE_ITEM.match(line)
        if item and (not current or len(item[1]) <= indent):
            current, indent = item[2], len(item[1])
            texts[current] = item[3].strip()
        elif current and line.strip():
            texts[current] = f"{texts[current]} {line.strip()}"
    return texts


def routine(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that runs when a function, partial or callable object is called."""
    while isinstance(function, functools.partial):
        function = function.func
    return function if inspect.isroutine(function) else type(function).__call__


def _doc(function: Callable[..., Any]) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function):  # a callable object, whose class may be documented
        own = routine(function).__doc__
        return inspect.cleandoc(own) if own else inspect.getdoc(type(function)) or ""
    return inspect.getdoc(function) or ""
