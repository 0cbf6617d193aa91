"""JSON Schema -> validator, safe for schemas written by strangers.

Rules, because both the schema and the value may be hostile:

1. Nothing is ever fetched. A reference leads to a place inside the document or is refused.
2. Patterns run in linear time. One that needs a backtracking engine (look-around,
   back-references) or is no regular expression is not checked here; whoever runs the tool
   still does. See `Validator.unchecked_patterns`.
3. The work is bounded before it starts: a schema is surveyed once for how many of its rules
   may look at one value, and a value that would multiply this into too much is refused.
4. `format` is an annotation, as the 2020-12 draft has it by default; it is not checked.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.errors import SchemaError

if TYPE_CHECKING:
    import jsonschema_rs

MAX_SCHEMA_BYTES = 256 * 1024
MAX_SCHEMA_DEPTH = 32  # subschemas inside each other
MAX_SUBSCHEMAS = 2_000
MAX_JSON_DEPTH = 64  # of the schema's own JSON, and of a value to be checked
MAX_RULES_PER_VALUE = 100_000  # with all references followed
MAX_REFERENCE_CHAIN = 100
MAX_PATHS = 20_000
MAX_PATTERNS = 100
MAX_WORK = 10_000_000  # rules times values; 5 to 12 ns each
MAX_WORK_FOR_ALL_ERRORS = 5_000  # about 50 µs each when alternatives are nested
MAX_WORK_FOR_FIRST_ERROR = 20_000  # where alternatives are nested; about 12 µs each
MAX_ECHO = 80  # characters of a value shown in a message
MAX_PATTERN_BYTES = 256 * 1024  # when compiled; one takes up to 3 ms

_DIALECTS = {
    "json-schema.org/draft/2020-12/schema": "2020-12",
    "json-schema.org/draft/2019-09/schema": "2019-09",
    "json-schema.org/draft-07/schema": "draft-07",
    "json-schema.org/draft-06/schema": "draft-06",
    "json-schema.org/draft-04/schema": "draft-04",
    "json-schema.org/schema": "2020-12",
}
_TYPES = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def check(schema: bytes) -> None:
    """Refuse a schema that is too large, refers to the outside, or is plainly wrong.

    Cheap: it does not load the validation engine, so a wrong bound such as
    `"minimum": "x"` is found by `compile` only.

    Raises:
        SchemaError: Names what is wrong, the value and the limit.
    """
    _Survey(_decode(schema)).costs()


def check_tool_input(schema: bytes) -> None:
    """`check`, and the schema must describe an object, as a tool's `inputSchema` has to.

    Raises:
        SchemaError: See `check`.
    """
    document = _decode(schema)
    if not isinstance(document, dict):
        raise SchemaError(f"an input schema must be an object, not {_kind(document)}")
    if document.get("type") != "object":
        given = f"not {_echo(document['type'])}" if "type" in document else "which is missing"
        raise SchemaError(f'an input schema must say "type": "object", {given}')
    _Survey(document).costs()


def compile(schema: bytes, *, member: str = "argument") -> Validator:
    """Make a validator. The first call loads the engine, which takes some 40 ms.

    Args:
        schema: A JSON Schema of draft 2020-12 (default), 2019-09, 7, 6 or 4.
        member: What messages call a property of the outermost object.

    Raises:
        SchemaError: See `check`; or the schema is not valid in its dialect.
    """
    document = _decode(schema)
    survey = _Survey(document)
    survey.costs()  # before the engine sees it
    try:
        return Validator(document, _engine(document), survey, member)
    except ValueError as error:
        problem = error
    unchecked = survey.unchecked_patterns()
    if unchecked:
        survey.relax(unchecked)
        try:
            return Validator(document, _engine(document), survey, member, sorted(unchecked))
        except ValueError as error:
            problem = error
    raise SchemaError(f"the schema is not valid: {_reason(problem)}")


class Validator:
    """Tells whether values fit one schema, in bounded time. Made by `compile`.

    Attributes:
        unchecked_patterns: Patterns in the schema that are not checked, because they cannot
            be run in linear time. When there are any, `not`, `oneOf`, `if` and
            `unevaluated…` are not checked either: they could refuse what fits.
    """

    def __init__(
        self,
        document: Any,
        engine: jsonschema_rs.Validator,
        survey: _Survey,
        member: str,
        unchecked_patterns: Sequence[str] = (),
    ) -> None:
        self._document = document
        self._engine = engine
        self._costs = survey.costs()
        self._nests_alternatives = survey.nests_alternatives()
        self._member = member
        self.unchecked_patterns = tuple(unchecked_patterns)

    def is_valid(self, value: Any) -> bool:
        """Whether the value fits. False also for what is no JSON, or too much to check."""
        if self._excess(*_measure(value)):
            return False
        try:
            return self._engine.is_valid(value)
        except ValueError:  # not a JSON value: bytes, NaN, a lone surrogate
            return False

    def errors(self, value: Any, limit: int = 5, *, echo: bool = True) -> list[str]:
        """Say why a value does not fit: one line a problem, at most `limit`, [] when it fits.

        Each line starts with the place, such as `filter.items[2]`, unless that is the whole
        value, and shows at most some 80 characters of what was found there; nothing of it
        without `echo`, for values that may be secret.
        """
        size, depth = _measure(value)
        if excess := self._excess(size, depth):
            return [excess]
        try:
            if self._engine.is_valid(value):
                return []
            found = self._find(value, size * self._cost(depth))
        except ValueError as error:
            return [f"not a JSON value: {_clip(str(error))}"]
        if not found:
            return ["does not fit the schema, which is too complex to say where"]
        lines = (line for error in found for line in self._lines(error, echo))
        # Two references to one rule report its problem twice.
        return list(dict.fromkeys(lines))[:limit]

    # Bounds

    def _cost(self, depth: int) -> int:
        return self._costs[min(depth, len(self._costs) - 1)]

    def _excess(self, size: int, depth: int) -> str | None:
        if depth > MAX_JSON_DEPTH:
            return f"nested deeper than {MAX_JSON_DEPTH} levels"
        if size * self._cost(depth) > MAX_WORK:
            return (
                f"too much to check: {size:,} values, nested {depth} deep, could need more than "
                f"{MAX_WORK:,} steps with this schema"
            )
        return None

    def _find(self, value: Any, work: int) -> list[jsonschema_rs.ValidationError]:
        """Fetch the errors there is time for: telling one costs 1,000 times finding it."""
        import jsonschema_rs

        if work <= MAX_WORK_FOR_ALL_ERRORS:
            return list(self._engine.iter_errors(value))
        if work <= MAX_WORK_FOR_FIRST_ERROR or not self._nests_alternatives:
            try:
                self._engine.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [error]
        return []

    # Words

    def _lines(self, error: jsonschema_rs.ValidationError, echo: bool) -> Iterator[str]:
        branch = _meant_branch(error)
        if branch:
            for inner in branch:
                yield from self._lines(inner, echo)
            return
        if told_apart := _told_apart(error, echo):
            yield told_apart
            return
        place = _place(error.instance_path)
        prefix = f"{place}: " if place else ""
        member = "property" if place else self._member
        match error.kind.name:
            case "required":
                yield f"{prefix}missing required {member} {_echo(error.kind.value)}"
            case "additionalProperties" | "unevaluatedProperties":
                for name in error.kind.value:
                    yield f"{prefix}unknown {member} {_echo(name)}{self._hint(error, name)}"
            case _:
                yield prefix + _problem(error, echo)

    def _hint(self, error: jsonschema_rs.ValidationError, unknown: str) -> str:
        """Find the property that was probably meant, among those that are not given."""
        import difflib

        rule = _follow(self._document, error.schema_path[:-1])
        known = rule.get("properties", {}) if isinstance(rule, dict) else {}
        given: Any = error.instance
        free = [name for name in known if name not in given]
        # Lenient, because few are left: "tz" has to find "timezone".
        close = difflib.get_close_matches(unknown[:MAX_ECHO], free, n=1, cutoff=0.4)
        return f" (did you mean {_echo(close[0])}?)" if close else ""


def _problem(error: jsonschema_rs.ValidationError, echo: bool) -> str:
    """Say in a few words what is wrong with the value at the error's place."""
    limit: Any = error.kind.value
    given: Any = error.instance
    shown = _echo(given) if echo else "the value"
    match error.kind.name:
        case "type":
            return f"{shown} is not {_types(limit)}"
        case "enum":
            return f"{shown} is not one of {_choice(limit)}"
        case "const":
            return f"{shown} is not {_echo(limit)}"
        case "minimum":
            return f"{shown} is less than the minimum {_echo(limit)}"
        case "maximum":
            return f"{shown} is more than the maximum {_echo(limit)}"
        case "exclusiveMinimum":
            return f"{shown} is not more than {_echo(limit)}"
        case "exclusiveMaximum":
            return f"{shown} is not less than {_echo(limit)}"
        case "multipleOf":
            return f"{shown} is not a multiple of {_echo(limit)}"
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
            return "has the same item twice"
        case "pattern":
            return f"{shown} does not match the pattern {_clip(limit)}"
        case "anyOf" | "oneOf":
            return f"{shown} {_no_alternative(error)}"
        case "falseSchema" | "unevaluatedItems" | "additionalItems":
            return f"{shown} is not allowed here"
        case "contains":
            return "does not hold as many items of the wanted kind as it must"
        case "propertyNames":
            return f"a name in it is not allowed: {_problem(limit, echo)}"
        case "not":
            return f"{shown} is what the schema excludes"
        case keyword:
            return f"{shown} breaks the rule {_echo(keyword)}"


def _meant_branch(
    error: jsonschema_rs.ValidationError,
) -> list[jsonschema_rs.ValidationError] | None:
    """Find the alternative the value was meant for: the only one of its type and constants."""
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


def _told_apart(error: jsonschema_rs.ValidationError, echo: bool) -> str | None:
    """Say which constants a member may have, when the alternatives differ by these alone."""
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
        places.add(_place(tags[0].instance_path))
        choices += value if tags[0].kind.name == "enum" else [value]
        given = tags[0].instance
    if len(places) != 1:
        return None
    place = places.pop()
    shown = _echo(given) if echo else "the value"
    return f"{place}: " * bool(place) + f"{shown} is not one of {_choice(choices)}"


def _no_alternative(error: jsonschema_rs.ValidationError) -> str:
    branches: list[list[jsonschema_rs.ValidationError]] = error.kind.value
    if [] in branches:
        return "fits more than one of the alternatives, and may fit only one"
    if all(len(branch) == 1 and branch[0].kind.name == "type" for branch in branches):
        return f"is not {_types(t for branch in branches for t in branch[0].kind.value)}"
    return f"fits none of the {len(branches)} alternatives"


def _types(names: Iterable[str]) -> str:
    """Join type names for a sentence, null last: "an integer or null"."""
    ordered = sorted(dict.fromkeys(names), key=lambda name: name == "null")
    words = [
        name if name == "null" else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
        for name in ordered
    ]
    return " or ".join(words)


def _echo(value: Any) -> str:
    """Show a value, at most some `MAX_ECHO` characters of it, in one line."""
    if isinstance(value, dict):
        return "the object"
    if isinstance(value, list):
        return "the list"
    if isinstance(value, str):
        short = value if len(value) <= MAX_ECHO else value[:MAX_ECHO] + "…"
        return repr(short)
    if isinstance(value, int) and value.bit_length() > 200:
        return "the number"  # Python refuses to print integers over 4,300 digits
    return msgspec.json.encode(value).decode()


def _clip(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MAX_ECHO else line[:MAX_ECHO] + "…"


def _choice(values: list[Any]) -> str:
    shown = ", ".join(map(_echo, values[:10]))
    more = f" and {len(values) - 10} more" if len(values) > 10 else ""
    return shown + more


def _count(value: str | list[Any] | dict[str, Any], noun: str) -> str:
    return f"{len(value)} {noun}" if len(value) == 1 else f"{len(value):,} {noun}s"


def _place(path: list[str | int]) -> str:
    """Write a path as one would in a program: filter.items[2]."""
    place = ""
    for step in path:
        if isinstance(step, str) and step.isidentifier() and len(step) <= MAX_ECHO:
            place += f".{step}"
        else:
            place += f"[{_echo(step)}]"
    return place.removeprefix(".")


def _follow(document: Any, path: Sequence[str | int]) -> Any:
    """Walk down a document; None when the path ends early."""
    for step in path:
        try:
            document = document[step]
        except (KeyError, IndexError, TypeError):
            return None
    return document


# The survey of a schema


class _Resource:
    """The document, or a part of it that has its own `$id`."""

    def __init__(self, uri: str, root: Any) -> None:
        self.uri = uri
        self.root = root
        self.anchors: dict[str, _Rule] = {}


class _Rule:
    """One subschema that is an object, and where it sends the engine next."""

    __slots__ = ("below", "here", "resource", "schema", "weight")

    def __init__(self, schema: dict[str, Any], resource: _Resource) -> None:
        self.schema = schema
        self.resource = resource
        self.weight = 1 + len(schema)
        self.here: list[_Rule] = []  # rules for the same value
        # Rules for its members: ".name" or an index for one, "{}" for every property, "[]" for
        # every item.
        self.below: list[tuple[str | int, _Rule]] = []


class _Flat:
    """What a rule asks for, once all rules for the same value are counted in."""

    __slots__ = ("below", "weight")

    def __init__(self, weight: int, below: dict[str | int, dict[_Rule, int]]) -> None:
        self.weight = weight
        self.below = below


class _Survey:
    """All subschemas of a document, found by a walk that stops at the limits."""

    def __init__(self, document: Any) -> None:
        self._subschemas = 0
        self._rules: dict[int, _Rule] = {}  # by id() of the JSON object, which `document` keeps
        self._references: list[tuple[_Rule, str, bool]] = []  # from, to, dynamic
        self._resources: dict[str, _Resource] = {}
        self._dynamic_anchors: dict[str, list[_Rule]] = {}
        self._id_keyword = "$id"
        self._patterns: set[str] = set()
        self._alternatives: list[_Rule] = []
        self._repeats = 1  # times a rule is looked at for each time its parent is
        if isinstance(document, dict) and _dialect(document) == "draft-04":
            self._id_keyword = "id"
        self._root = self._visit(document, None, 0)
        # Grows while it is walked: a reference may lead to a place that is no subschema yet.
        for rule, reference, dynamic in self._references:
            rule.here += self._targets(rule, reference, dynamic)

    # Walking

    def _visit(self, schema: Any, resource: _Resource | None, depth: int) -> _Rule | None:
        """Note a subschema and all below it; None for `true` and `false`."""
        if id(schema) in self._rules:
            return self._rules[id(schema)]
        self._subschemas += 1
        if self._subschemas > MAX_SUBSCHEMAS:
            raise SchemaError(f"the schema has more than {MAX_SUBSCHEMAS:,} subschemas")
        if schema is True or schema is False:
            return None
        if not isinstance(schema, dict):
            raise SchemaError(f"a schema must be an object or a boolean, not {_kind(schema)}")
        if depth >= MAX_SCHEMA_DEPTH:
            raise SchemaError(f"the schema is nested deeper than {MAX_SCHEMA_DEPTH} subschemas")
        rule = _Rule(schema, self._resource_of(schema, resource))
        self._rules[id(schema)] = rule
        for keyword, value in schema.items():
            read = _KEYWORDS.get(keyword)
            if read is not None:
                read(self, rule, keyword, value, depth + 1)
            elif type(value) in _CONTAINERS and _measure(value)[1] > MAX_JSON_DEPTH:
                raise SchemaError(f"{keyword!r} is nested deeper than {MAX_JSON_DEPTH} levels")
        return rule

    def _resource_of(self, schema: dict[str, Any], outer: _Resource | None) -> _Resource:
        identifier = schema.get(self._id_keyword)
        if not isinstance(identifier, str) or identifier.startswith("#"):
            return outer or self._add_resource("", schema)
        from urllib.parse import urldefrag, urljoin

        return self._add_resource(
            urldefrag(urljoin(outer.uri if outer else "", identifier)).url, schema
        )

    def _add_resource(self, uri: str, schema: dict[str, Any]) -> _Resource:
        return self._resources.setdefault(uri, _Resource(uri, schema))

    def _read_one(self, rule: _Rule, keyword: str, value: Any, depth: int) -> None:
        inner = self._visit(value, rule.resource, depth)
        if inner is not None:
            if keyword in _EVERY_MEMBER:
                rule.below.append((_EVERY_MEMBER[keyword], inner))
            elif keyword != "contentSchema":
                rule.here.append(inner)

    def _read_unevaluated(self, rule: _Rule, keyword: str, value: Any, depth: int) -> None:
        # To learn what is evaluated, the engine looks at each rule below again, and again for
        # each such keyword on the way: 2.6 times a level.
        self._repeats = 3
        self._read_one(rule, keyword, value, depth)

    def _read_list(self, rule: _Rule, keyword: str, value: Any, depth: int) -> None:
        if not isinstance(value, list) or not value:
            given = _kind(value) if value != [] else "an empty one"
            raise SchemaError(f"{keyword!r} must be a list of schemas, not {given}")
        for index, item in enumerate(value):
            inner = self._visit(item, rule.resource, depth)
            if inner is not None:
                if keyword in {"items", "prefixItems"}:
                    rule.below.append((index, inner))
                else:
                    rule.here.append(inner)
                if keyword in {"anyOf", "oneOf"}:
                    self._alternatives.append(inner)

    def _read_items(self, rule: _Rule, keyword: str, value: Any, depth: int) -> None:
        if isinstance(value, list):  # draft 2019-09 and before
            if value:
                self._read_list(rule, keyword, value, depth)
        else:
            self._read_one(rule, keyword, value, depth)

    def _read_map(self, rule: _Rule, keyword: str, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise SchemaError(f"{keyword!r} must be an object of schemas, not {_kind(value)}")
        for name, item in value.items():
            if keyword == "dependencies" and isinstance(item, list):
                continue
            if keyword == "patternProperties":
                self._read_pattern(rule, keyword, name, depth)
            inner = self._visit(item, rule.resource, depth)
            if inner is None:
                continue
            if keyword == "properties":
                rule.below.append(("." + name, inner))
            elif keyword == "patternProperties":
                rule.below.append(("{}", inner))
            elif keyword not in {"$defs", "definitions"}:
                rule.here.append(inner)

    def _read_reference(self, rule: _Rule, keyword: str, value: Any, _depth: int) -> None:
        if not isinstance(value, str):
            raise SchemaError(f"{keyword!r} must be a string, not {_kind(value)}")
        self._references.append((rule, value, keyword != "$ref"))

    def _read_anchor(self, rule: _Rule, keyword: str, value: Any, _depth: int) -> None:
        if keyword == "$recursiveAnchor":
            if value is True:
                self._dynamic_anchors.setdefault("", []).append(rule)
            return
        if not isinstance(value, str):
            raise SchemaError(f"{keyword!r} must be a string, not {_kind(value)}")
        if keyword in {"$id", "id"}:
            if not value.startswith("#"):
                return
            value = value[1:]  # how drafts 4 to 7 name an anchor
        rule.resource.anchors[value] = rule
        if keyword == "$dynamicAnchor":
            self._dynamic_anchors.setdefault(value, []).append(rule)

    def _read_type(self, _rule: _Rule, _keyword: str, value: Any, _depth: int) -> None:
        names = value if isinstance(value, list) else [value]
        for name in names:
            if not isinstance(name, str) or name not in _TYPES:
                raise SchemaError(f"{_echo(name)} is not a type of JSON Schema")

    def _read_pattern(self, _rule: _Rule, keyword: str, value: Any, _depth: int) -> None:
        if not isinstance(value, str):
            raise SchemaError(f"{keyword!r} must be a string, not {_kind(value)}")
        self._patterns.add(value)
        if len(self._patterns) > MAX_PATTERNS:
            raise SchemaError(f"the schema has more than {MAX_PATTERNS} patterns")

    def _read_multiple(self, rule: _Rule, _keyword: str, value: Any, _depth: int) -> None:
        if isinstance(value, float):  # computed in fractions, which takes up to 25 µs
            rule.weight += 300

    def _read_enum(self, rule: _Rule, keyword: str, value: Any, _depth: int) -> None:
        if not isinstance(value, list):
            raise SchemaError(f"{keyword!r} must be a list, not {_kind(value)}")
        if _measure(value)[1] > MAX_JSON_DEPTH:
            raise SchemaError(f"{keyword!r} is nested deeper than {MAX_JSON_DEPTH} levels")
        # The engine looks values up in a table, but an error lists them all.
        rule.weight += len(value) // 16

    # References

    def _targets(self, rule: _Rule, reference: str, dynamic: bool) -> list[_Rule]:
        resource, fragment = self._locate(rule.resource, reference)
        if fragment and not fragment.startswith("/"):
            found: Any = resource.anchors.get(fragment)
        else:
            found = _point(resource.root, fragment)
            if found is True or found is False:
                return []
            found = self._visit(found, resource, 0) if isinstance(found, dict) else None
        if found is None:
            raise SchemaError(f"the reference {_echo(reference)} leads nowhere in the schema")
        targets = [found]
        if dynamic:
            targets += [r for r in self._dynamic_anchors.get(fragment, ()) if r is not found]
        return targets

    def _locate(self, base: _Resource, reference: str) -> tuple[_Resource, str]:
        if reference.startswith("#") and "%" not in reference:
            return base, reference[1:]
        from urllib.parse import unquote, urldefrag, urljoin

        if reference.startswith("#"):
            return base, unquote(reference[1:])
        uri, fragment = urldefrag(urljoin(base.uri, reference))
        resource = self._resources.get(uri)
        if resource is None:
            raise SchemaError(
                f"the reference {_echo(reference)} leads outside of the schema, "
                "and nothing is ever fetched: put its target into $defs"
            )
        return resource, unquote(fragment)

    # Counting

    def costs(self) -> list[int]:
        """Count the rules that may look at one value, by how deep values are nested below it.

        Entry d is for a value with d levels below it and the last one also for all deeper; it
        is over `MAX_WORK` where the count of a recursive schema explodes.

        Raises:
            SchemaError: Too many, or a rule leads back to itself for the same value.
        """
        if not self._references and self._repeats == 1:  # a tree: each rule looks once
            return [sum(rule.weight for rule in self._rules.values()) or 1]
        if self._root is None:
            return [1]
        flats = _flatten_all(self._root, self._repeats)
        level = dict.fromkeys(flats, 0)
        costs: list[int] = []
        for _ in range(MAX_JSON_DEPTH + 1):
            deeper = {rule: _cost(flat, level) for rule, flat in flats.items()}
            if deeper == level:
                break
            level = deeper
            costs.append(level[self._root])
            if costs[-1] > MAX_WORK:
                break
        return costs

    def nests_alternatives(self) -> bool:
        """Whether an alternative looks further, so that telling why none fits may be long."""
        return any(rule.here or rule.below for rule in self._alternatives)

    # Patterns

    def unchecked_patterns(self) -> set[str]:
        """Find the patterns the linear-time engine cannot do."""
        return {pattern for pattern in self._patterns if not _is_linear(pattern)}

    def relax(self, unchecked: set[str]) -> None:
        """Make patterns match everything, so that the schema accepts more and never less.

        What refuses a value because something else fits has to go as well.
        """
        for rule in self._rules.values():
            schema = rule.schema
            for keyword in _REFUSE_WHAT_FITS:
                schema.pop(keyword, None)
            if "oneOf" in schema:
                schema["allOf"] = [*schema.get("allOf", ()), {"anyOf": schema.pop("oneOf")}]
            if schema.get("pattern") in unchecked:
                del schema["pattern"]
            if unchecked & schema.get("patternProperties", {}).keys():
                schema["patternProperties"] = {"": True}


_INDEX = re.compile("[0-9]{1,6}")
_CONTAINERS = frozenset({dict, list})
_EVERY_MEMBER = {
    "additionalItems": "[]",
    "additionalProperties": "{}",
    "contains": "[]",
    "items": "[]",
    "propertyNames": "{}",
    "unevaluatedItems": "[]",
    "unevaluatedProperties": "{}",
}
_REFUSE_WHAT_FITS = (
    "not",
    "if",
    "then",
    "else",
    "maxContains",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_KEYWORDS: dict[str, Callable[[_Survey, _Rule, str, Any, int], None]] = {
    "$anchor": _Survey._read_anchor,
    "$defs": _Survey._read_map,
    "$dynamicAnchor": _Survey._read_anchor,
    "$dynamicRef": _Survey._read_reference,
    "$id": _Survey._read_anchor,
    "$recursiveAnchor": _Survey._read_anchor,
    "$recursiveRef": _Survey._read_reference,
    "$ref": _Survey._read_reference,
    "additionalItems": _Survey._read_one,
    "additionalProperties": _Survey._read_one,
    "allOf": _Survey._read_list,
    "anyOf": _Survey._read_list,
    "contains": _Survey._read_one,
    "contentSchema": _Survey._read_one,
    "definitions": _Survey._read_map,
    "dependencies": _Survey._read_map,
    "dependentSchemas": _Survey._read_map,
    "else": _Survey._read_one,
    "enum": _Survey._read_enum,
    "id": _Survey._read_anchor,
    "if": _Survey._read_one,
    "items": _Survey._read_items,
    "multipleOf": _Survey._read_multiple,
    "not": _Survey._read_one,
    "oneOf": _Survey._read_list,
    "pattern": _Survey._read_pattern,
    "patternProperties": _Survey._read_map,
    "prefixItems": _Survey._read_list,
    "properties": _Survey._read_map,
    "propertyNames": _Survey._read_one,
    "then": _Survey._read_one,
    "type": _Survey._read_type,
    "unevaluatedItems": _Survey._read_unevaluated,
    "unevaluatedProperties": _Survey._read_unevaluated,
}


def _flatten_all(root: _Rule, repeats: int) -> dict[_Rule, _Flat]:
    """Flatten every rule that can be reached."""
    flats: dict[_Rule, _Flat | None] = {}
    reached = {root: None}
    queue = [root]
    entries = 0
    for rule in queue:  # grows
        flat = _flatten(rule, flats, repeats, 0)
        for members in flat.below.values():
            entries += len(members)
            queue += [member for member in members if member not in reached]
            reached.update(dict.fromkeys(members))
        if entries > MAX_PATHS:
            raise SchemaError(f"the schema's references lead along more than {MAX_PATHS:,} paths")
    return {rule: flat for rule, flat in flats.items() if flat is not None}


def _flatten(rule: _Rule, flats: dict[_Rule, _Flat | None], repeats: int, depth: int) -> _Flat:
    """Count in the rules for the same value, however many references away."""
    if rule in flats:
        flat = flats[rule]
        if flat is None:
            raise SchemaError(
                "a reference leads back to its own place without going deeper into the value, "
                "so checking would never end"
            )
        return flat
    if depth > MAX_REFERENCE_CHAIN:
        raise SchemaError(f"more than {MAX_REFERENCE_CHAIN} rules lead from one to the next")
    flats[rule] = None  # being counted
    inner = [_flatten(other, flats, repeats, depth + 1) for other in rule.here]
    weight = rule.weight + repeats * sum(flat.weight for flat in inner)
    if weight > MAX_RULES_PER_VALUE:
        raise SchemaError(
            f"with its references followed, the schema has more than {MAX_RULES_PER_VALUE:,} "
            "rules for one value"
        )
    if len(inner) == repeats == 1 and not rule.below:
        below = inner[0].below
    else:
        below = {}
        for flat in inner:
            for label, members in flat.below.items():
                counted = below.setdefault(label, {})
                for member, times in members.items():
                    counted[member] = counted.get(member, 0) + times * repeats
        for label, member in rule.below:
            counted = below.setdefault(label, {})
            counted[member] = counted.get(member, 0) + 1
    flats[rule] = flat = _Flat(weight, below)
    return flat


def _cost(flat: _Flat, level: dict[_Rule, int]) -> int:
    """Count the rules for a value and, along the dearest path, for what is in it."""
    named = indexed = every_property = every_item = 0
    for label, members in flat.below.items():
        cost = sum(times * level[member] for member, times in members.items())
        if label == "{}":
            every_property = cost
        elif label == "[]":
            every_item = cost
        elif isinstance(label, int):
            indexed = max(indexed, cost)
        else:
            named = max(named, cost)
    return flat.weight + max(named + every_property, indexed + every_item)


def _point(document: Any, pointer: str) -> Any:
    """Resolve a JSON pointer; None when it leads nowhere."""
    for step in pointer.split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(document, list):
            document = (
                document[int(step)] if step.isdecimal() and int(step) < len(document) else None
            )
        elif isinstance(document, dict):
            document = document.get(step)
        else:
            return None
    return document


# Small things


def _decode(schema: bytes) -> Any:
    if len(schema) > MAX_SCHEMA_BYTES:
        raise SchemaError(
            f"the schema has {len(schema):,} bytes, over the limit of {MAX_SCHEMA_BYTES:,}"
        )
    try:
        document = msgspec.json.decode(schema)
    except RecursionError:
        raise SchemaError(f"the schema is nested deeper than {MAX_JSON_DEPTH} levels") from None
    except ValueError as error:
        raise SchemaError(f"the schema is not JSON: {error}") from None
    if not isinstance(document, dict | bool):
        raise SchemaError(f"a schema must be an object or a boolean, not {_kind(document)}")
    return document


def _dialect(document: dict[str, Any]) -> str:
    """Name the draft a schema is written in.

    Raises:
        SchemaError: We do not know it.
    """
    uri = document.get("$schema", "https://json-schema.org/draft/2020-12/schema")
    if isinstance(uri, str):
        key = uri.removeprefix("https://").removeprefix("http://").removesuffix("#")
        if key in _DIALECTS:
            return _DIALECTS[key]
    known = ", ".join(sorted(set(_DIALECTS.values())))
    raise SchemaError(f"$schema {_echo(uri)} is not supported; supported are {known}")


def _engine(document: Any) -> jsonschema_rs.Validator:
    import jsonschema_rs

    return jsonschema_rs.validator_for(
        document,
        offline=True,
        pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES),
        validate_formats=False,
    )


def _reason(error: ValueError) -> str:
    """Say in one line why the engine refuses a schema."""
    place = _place(getattr(error, "instance_path", []))
    text = _clip(getattr(error, "message", str(error)))
    return f"{place}: {text}" if place else text


def _is_linear(pattern: str) -> bool:
    try:
        _engine({"pattern": pattern})
    except ValueError:
        return False
    return True


def _measure(value: Any) -> tuple[int, int]:
    """Count the values in a value, and the levels below it, up to one over the limit.

    Long text counts as several values, as patterns have to read it.
    """
    size, depth = 0, 0
    level = [value]
    while True:
        size += len(level)
        below: list[Any] = []
        for item in level:
            if isinstance(item, str):
                size += len(item) >> 10
            elif isinstance(item, dict):
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        if not below or depth > MAX_JSON_DEPTH:
            return size, depth
        level = below
        depth += 1


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case int() | float():
            return "a number"
        case str():
            return "a string"
        case list():
            return "a list"
        case _:
            return "an object"
