"""Validators for JSON Schemas, safe for untrusted schemas.

Rules, because both the schema and the value may be hostile:

1. Nothing is ever fetched. A reference that leads outside of the document is refused.
2. Patterns run in linear time. A pattern that needs backtracking (look-around,
   back-references) or is not valid is not checked; the server that runs the tool still does.
   Then `not`, `oneOf`, `if` and `unevaluated…` are not checked either, because they could refuse
   valid values.
3. The work is bounded before it starts. The rules that may apply to one value are counted
   once; a value with so many parts that the work exceeds `MAX_WORK` is refused.
4. `format` is an annotation, which is the default of draft 2020-12; it is not checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from interlock.errors import SchemaError
from interlock.schema import cost, explain
from interlock.schema.cost import MAX_WORK
from interlock.schema.inspection import MAX_JSON_DEPTH, Survey, measure
from interlock.text import quoting

if TYPE_CHECKING:
    import jsonschema_rs

MAX_SCHEMA_BYTES = 256 * 1024
MAX_WORK_FOR_ALL_ERRORS = 5_000  # one unit takes about 50 µs if alternatives are nested
MAX_WORK_FOR_ALL_ERRORS_OF_FLAT = 200_000  # an error takes about 10 µs without such alternatives
MAX_WORK_FOR_FIRST_ERROR = 20_000  # one unit takes about 12 µs if alternatives are nested
MAX_CHEAP = 1_000  # with at most this many rules per value, small flat values are not measured
MAX_FLAT = 100  # members in a flat object
MAX_PATTERN_BYTES = 256 * 1024  # size of a compiled pattern; compiling takes up to 3 ms

_SCALARS = frozenset({str, int, float, bool, type(None)})


def check(schema: bytes) -> None:
    """Raise an error if a schema is too large, has an external reference, or is not valid.

    This does not load the validation engine, so a wrong bound such as `"minimum": "x"` is found
    by `compile` only.

    Raises:
        SchemaError: The schema is refused; the text has the reason, the value and the limit.
    """
    cost.by_depth(Survey(_decode(schema)))


def check_tool_input(schema: bytes) -> None:
    """Check a schema with `check`; it must also describe an object, as the spec demands.

    Raises:
        SchemaError: See `check`.
    """
    document = _decode(schema)
    if not isinstance(document, dict):
        raise SchemaError(f"an input schema must be an object, not {quoting.kind(document)}")
    if document.get("type") != "object":
        given = (
            f"not {quoting.echo(document['type'])}" if "type" in document else "which is missing"
        )
        raise SchemaError(f'an input schema must say "type": "object", {given}')
    cost.by_depth(Survey(document))


def compile(schema: bytes, *, member: str = "argument") -> Validator:
    """Return a validator. The first call loads the engine, which takes some 40 ms.

    Args:
        schema: A JSON Schema of draft 2020-12 (default), 2019-09, 7, 6 or 4.
        member: The word in messages for a member of the outermost object.

    Raises:
        SchemaError: See `check`; or the schema is not valid in its dialect.
    """
    document = _decode(schema)
    survey = Survey(document)
    costs = cost.by_depth(survey)  # before the engine compiles it
    try:
        engine = _engine(document)
    except SchemaError:
        unchecked = {pattern for pattern in survey.patterns if not is_linear(pattern)}
        if not unchecked:
            raise
        survey.relax(unchecked)
        engine = _engine(document)
        schema = msgspec.json.encode(document)
    return Validator(schema, engine, costs, survey.nests_alternatives(), member)


class Validator:
    """Validates values against one schema, in bounded time. `compile` returns one."""

    def __init__(
        self,
        schema: bytes,
        engine: jsonschema_rs.Validator,
        costs: list[int],
        nests_alternatives: bool,
        member: str,
    ) -> None:
        self._schema = schema  # encoded: seldom needed, and a fifth of the decoded size
        self._engine = engine
        self._costs = costs
        self._nests_alternatives = nests_alternatives
        self._member = member
        self._is_cheap = max(costs) <= MAX_CHEAP

    def is_valid(self, value: Any) -> bool:
        """Return whether a value is valid; False if it is not JSON, or too large to check."""
        if self._excess(*measure(value)):
            return False
        try:
            return self._engine.is_valid(value)
        except ValueError:  # not a JSON value: bytes, NaN, a lone surrogate
            return False

    def errors(self, value: Any, limit: int = 5, *, echo: bool = True) -> list[str]:
        """Return one line for each problem in a value; [] if the value is valid.

        Args:
            value: Any JSON value.
            limit: The largest number of lines.
            echo: Whether lines show up to 80 characters of the value, which may be secret.

        Each line starts with the place, such as `filter.items[2]`, unless that is the whole value.
        """
        try:
            is_flat = type(value) in _SCALARS or (
                type(value) is dict
                and len(value) <= MAX_FLAT
                and _SCALARS.issuperset(map(type, value.values()))
            )
            if is_flat and self._is_cheap and self._engine.is_valid(value):
                return []
            size, depth = measure(value)
            if excess := self._excess(size, depth):
                return [excess]
            if self._engine.is_valid(value):
                return []
            found = self._find(value, size * self._cost(depth))
        except ValueError as error:
            return [f"not a JSON value: {quoting.clip(str(error))}"]
        if not found:
            return ["does not fit the schema, which is too complex to find the place"]
        document = msgspec.json.decode(self._schema)
        lines = (
            line
            for error in found
            for line in explain.lines(error, document, member=self._member, echo=echo)
        )
        # Two references to one rule report the same problem.
        return list(dict.fromkeys(lines))[:limit]

    def problems(self, value: Any) -> list[jsonschema_rs.ValidationError]:
        """Return the engine's errors; [] if the value is valid, not JSON, or too large to check."""
        try:
            size, depth = measure(value)
            work = size * self._cost(depth)
            if self._excess(size, depth) or self._engine.is_valid(value):
                return []
            if work <= MAX_WORK_FOR_ALL_ERRORS_OF_FLAT and not self._nests_alternatives:
                return list(self._engine.iter_errors(value))
            return self._find(value, work)
        except ValueError:  # not a JSON value: bytes, NaN, a lone surrogate
            return []

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
        """Return all errors, the first error or none, as `work` allows: describing is slow."""
        import jsonschema_rs

        if work <= MAX_WORK_FOR_ALL_ERRORS:
            return list(self._engine.iter_errors(value))
        if work <= MAX_WORK_FOR_FIRST_ERROR or not self._nests_alternatives:
            try:
                self._engine.validate(value)
            except jsonschema_rs.ValidationError as error:
                return [error]
        return []


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
        raise SchemaError(f"a schema must be an object or a boolean, not {quoting.kind(document)}")
    return document


def _engine(document: Any) -> jsonschema_rs.Validator:
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(
            document,
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES),
            validate_formats=False,
        )
    except ValueError as error:
        place = quoting.place(getattr(error, "instance_path", []))
        reason = quoting.clip(getattr(error, "message", str(error)))
        where = f"{place}: " if place else ""
        raise SchemaError(f"the schema is not valid: {where}{reason}") from None


def is_linear(pattern: str) -> bool:
    """Return whether a regular expression is valid, and needs no backtracking."""
    try:
        _engine({"pattern": pattern})
    except SchemaError:
        return False
    return True
