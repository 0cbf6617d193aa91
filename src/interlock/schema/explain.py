"""Validation errors as sentences that a model or a person can act on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from interlock.text import quoting

if TYPE_CHECKING:
    import jsonschema_rs


def lines(
    error: jsonschema_rs.ValidationError, document: Any, *, member: str, echo: bool
) -> Iterator[str]:
    """Return the sentences for one error from the engine, one for each member that it concerns.

    Args:
        error: The engine's error.
        document: The schema.
        member: The word for a member of the outermost object, such as "argument".
        echo: Whether to show the value.
    """
    branch = _meant_branch(error)
    if branch:
        for inner in branch:
            yield from lines(inner, document, member=member, echo=echo)
        return
    if wrong_tag := _wrong_tag(error, echo):
        yield wrong_tag
        return
    place = quoting.place(error.instance_path)
    prefix = f"{place}: " if place else ""
    noun = "property" if place else member
    match error.kind.name:
        case "required":
            yield f"{prefix}missing required {noun} {quoting.echo(error.kind.value)}"
        case "additionalProperties" | "unevaluatedProperties":
            for name in error.kind.value:
                yield f"{prefix}unknown {noun} {quoting.echo(name)}{_hint(error, document, name)}"
        case _:
            yield prefix + _problem(error, echo)


def _hint(error: jsonschema_rs.ValidationError, document: Any, unknown: str) -> str:
    """Return a hint that names the known property most similar to `unknown`, or ""."""
    import difflib

    rule = _follow(document, error.schema_path[:-1])
    known = rule.get("properties", {}) if isinstance(rule, dict) else {}
    given: Any = error.instance
    free = [name for name in known if name not in given]
    # There are few candidates, so a low cutoff is safe; it lets "tz" match "timezone".
    close = difflib.get_close_matches(unknown[: quoting.MAX_ECHO], free, n=1, cutoff=0.4)
    if close:
        return f" (did you mean {quoting.echo(close[0])}?)"
    # A tool that calls other tools takes the arguments of those in an object.
    is_inner = "arguments" in known and unknown.isidentifier() and len(unknown) <= quoting.MAX_ECHO
    return f""" (put it into arguments='{{"{unknown}": …}}')""" if is_inner else ""


def _problem(error: jsonschema_rs.ValidationError, echo: bool) -> str:
    """Return the problem of a value, without its place."""
    limit: Any = error.kind.value
    given: Any = error.instance
    shown = quoting.echo(given) if echo else "the value"
    match error.kind.name:
        case "type":
            return f"{shown} is not {_types(limit)}"
        case "enum":
            return f"{shown} is not one of {_choice(limit)}"
        case "const":
            return f"{shown} is not {quoting.echo(limit)}"
        case "minimum":
            return f"{shown} is less than the minimum {quoting.echo(limit)}"
        case "maximum":
            return f"{shown} is more than the maximum {quoting.echo(limit)}"
        case "exclusiveMinimum":
            return f"{shown} is not more than {quoting.echo(limit)}"
        case "exclusiveMaximum":
            return f"{shown} is not less than {quoting.echo(limit)}"
        case "multipleOf":
            return f"{shown} is not a multiple of {quoting.echo(limit)}"
        case "minLength":
            return f"{shown} has {_count(given, 'character')}, the minimum is {limit}"
        case "maxLength":
            return f"{shown} has {_count(given, 'character')}, the maximum is {limit}"
        case "minItems":
            return f"has {_count(given, 'item')}, the minimum is {limit}"
        case "maxItems":
            return f"has {_count(given, 'item')}, the maximum is {limit}"
        case "minProperties":
            return f"has {_count(given, 'member')}, the minimum is {limit}"
        case "maxProperties":
            return f"has {_count(given, 'member')}, the maximum is {limit}"
        case "uniqueItems":
            return "has duplicate items"
        case "pattern":
            return f"{shown} does not match the pattern {quoting.clip(limit)}"
        case "anyOf" | "oneOf":
            return f"{shown} {_no_alternative(error)}"
        case "falseSchema" | "unevaluatedItems" | "additionalItems":
            return f"{shown} is not allowed here"
        case "contains":
            return "has too few or too many items of the required kind"
        case "propertyNames":
            return f"a member name is not allowed: {_problem(limit, echo)}"
        case "not":
            return f"{shown} is excluded by the schema"
        case keyword:
            return f"{shown} violates {quoting.echo(keyword)}"


def _meant_branch(
    error: jsonschema_rs.ValidationError,
) -> list[jsonschema_rs.ValidationError] | None:
    """Return the errors from the only alternative whose type and constants match the value."""
    if error.kind.name not in {"anyOf", "oneOf"}:
        return None
    here = len(error.instance_path)

    def is_another_kind(inner: jsonschema_rs.ValidationError) -> bool:
        below = len(inner.instance_path) - here
        return (inner.kind.name == "type" and below == 0) or (
            inner.kind.name in {"const", "enum"} and below <= 1
        )

    branches: list[list[jsonschema_rs.ValidationError]] = error.kind.value
    meant = [branch for branch in branches if not any(map(is_another_kind, branch))]
    return meant[0] if len(meant) == 1 else None


def _wrong_tag(error: jsonschema_rs.ValidationError, echo: bool) -> str | None:
    """Return the constants that a member may have, if only these tell the alternatives apart."""
    if error.kind.name not in {"anyOf", "oneOf"}:
        return None
    here = len(error.instance_path)
    places: set[str] = set()
    choices: list[Any] = []
    given: Any = None
    for branch in error.kind.value:
        tags = [inner for inner in branch if inner.kind.name in {"const", "enum"}]
        if len(tags) != 1 or len(tags[0].instance_path) > here + 1:
            return None
        value: Any = tags[0].kind.value
        places.add(quoting.place(tags[0].instance_path))
        choices += value if tags[0].kind.name == "enum" else [value]
        given = tags[0].instance
    if len(places) != 1:
        return None
    place = places.pop()
    shown = quoting.echo(given) if echo else "the value"
    return f"{place}: " * bool(place) + f"{shown} is not one of {_choice(choices)}"


def _no_alternative(error: jsonschema_rs.ValidationError) -> str:
    branches: list[list[jsonschema_rs.ValidationError]] = error.kind.value
    if [] in branches:
        return "fits several of the alternatives, but must fit exactly one"
    if all(len(branch) == 1 and branch[0].kind.name == "type" for branch in branches):
        return f"is not {_types(t for branch in branches for t in branch[0].kind.value)}"
    return f"fits none of the {len(branches)} alternatives"


def _types(names: Iterable[str]) -> str:
    """Join type names for a sentence: "an integer or null"."""
    ordered = sorted(dict.fromkeys(names), key=lambda name: name == "null")
    words = [
        name if name == "null" else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        for name in ordered
    ]
    return " or ".join(words)


def _choice(values: list[Any]) -> str:
    shown = ", ".join(map(quoting.echo, values[:10]))
    more = f" and {len(values) - 10} more" if len(values) > 10 else ""
    return shown + more


def _count(value: str | list[Any] | dict[str, Any], noun: str) -> str:
    return f"{len(value)} {noun}" if len(value) == 1 else f"{len(value):,} {noun}s"


def _follow(document: Any, path: Sequence[str | int]) -> Any:
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document
