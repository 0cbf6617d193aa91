"""A listed operation as a tool: its definition, and the requests of its calls.

A plan is data. Nothing in the document is evaluated, compiled or used as a template of code.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from msgspec import UNSET, Struct

from interlock import schema as json_schema
from interlock.errors import InvalidArguments, SchemaError
from interlock.openapi import arguments as argument_module
from interlock.openapi import bodies, budget, operations, routes, serialisation, shapes, texts
from interlock.openapi.arguments import Argument
from interlock.openapi.document import Document
from interlock.openapi.operations import Operation, Parameter
from interlock.openapi.references import DocumentError
from interlock.openapi.schemas import Translator
from interlock.openapi.selection import ToolSelection
from interlock.types import JsonObject

MAX_TITLE = 80
MAX_DESCRIPTION = 1_000

_READ = frozenset({"GET", "HEAD", "OPTIONS", "QUERY"})
_IDEMPOTENT = _READ | {"PUT", "DELETE"}


class PlannedRequest(Struct, frozen=True):
    """A request, relative to the base URL that the operator configured.

    Attributes:
        target: The encoded path and query, which start with "/".
        headers: The headers of the operation, without credentials.
        body: The body; None if the request has no body.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | None = None


_PAIRS: dict[str, Callable[[str, Any, operations.Style, Any], list[str]]] = {
    "query": serialisation.query,
    "cookie": serialisation.cookie,
}


class Plan:
    """A tool made from an operation.

    Attributes:
        name: The name of the tool.
        selection: The operator's configuration of the tool.
        operation: The operation in the document.
        definition: The MCP `Tool`, as a JSON object.
        input_schema: The whole schema of the arguments, against which calls are checked.
        shown: The input schema that a model sees, cut to its size budget.
        output_schema: The shape of JSON answers; None if it is not known.
    """

    def __init__(
        self,
        name: str,
        selection: ToolSelection,
        operation: Operation,
        arguments: list[Argument],
        form: bodies.Form | None,
        template: routes.PathTemplate,
        credentials: Iterable[tuple[str, str]],
        input_schema: JsonObject,
        output_schema: JsonObject | None,
    ) -> None:
        self.name = name
        self.selection = selection
        self.operation = operation
        self.input_schema = input_schema
        self._arguments = arguments
        self._form = form
        self._template = template
        self._taken: dict[str, list[str]] = {"query": [], "cookie": [], "path": []}  # names
        for place, taken in self._taken.items():
            taken += (each.name for each in operation.parameters if each.place == place)
            taken += (each for where, each in credentials if where == place)
        self._taken["query"] += map(_pair_name, operation.fixed_query)
        for each in arguments:  # a constant object is sent under the names of its members
            if each.parameter and each.place in _PAIRS and isinstance(each.value, dict):
                write = _PAIRS[each.place]
                pairs = write(each.parameter.name, each.value, each.parameter.style, each.kinds)
                self._taken[each.place] += map(_pair_name, pairs)
        self._accept = selection.accept or _accept(operation)
        self.has_body = form is not None
        self._is_flat = any(each.place == "body" and each.target for each in arguments)
        self._validator: json_schema.Validator | None = None
        self.shown = budget.fit(input_schema)
        self.output_schema = output_schema
        self.definition = _definition(self)

    @property
    def arguments(self) -> dict[str, JsonObject]:
        """The place of each argument: {"limit": {"in": "query", "name": "page[size]"}}."""
        return {
            each.name: {"in": each.place, "name": each.target}
            for each in self._arguments
            if each.name
        }

    @property
    def null_arguments(self) -> frozenset[str]:
        """The arguments in which null removes a value: those for the body of a PATCH (RFC 7396)."""
        if self.operation.method != "PATCH":
            return frozenset()
        return frozenset(each.name for each in self._arguments if each.place == "body")

    def check(self, given: JsonObject) -> None:
        """Raise an error if the arguments do not match the input schema.

        Raises:
            InvalidArguments: The arguments are not valid. The text names the argument and the
                rule, never the value.
        """
        if self._validator is None:
            self._validator = self._compile()
        problems = self._validator.errors(given, echo=False)
        if problems:
            raise InvalidArguments("; ".join(problems))

    def _compile(self) -> json_schema.Validator:
        try:
            return json_schema.compile(msgspec.json.encode(self.input_schema))
        except SchemaError:  # the whole schema is too large: check with the smaller, wider schema
            return json_schema.compile(msgspec.json.encode(self.definition["inputSchema"]))

    def request(self, given: JsonObject) -> PlannedRequest:
        """Build the request for a call's arguments.

        Raises:
            InvalidArguments: The arguments do not match the document, or the path would reach
                another operation.
        """
        if None in given.values():
            given = {
                name: value
                for name, value in given.items()
                if value is not None or self._sends_null(name)
            }
        self.check(given)
        values = self._values(given)
        path, query, cookies = {}, [], []
        headers = [("Accept", self._accept)]
        for argument, value in values:
            parameter = argument.parameter
            if parameter is None:
                continue
            if argument.place == "path":
                if parameter.style.name == "matrix" and isinstance(value, dict):
                    self._check_names(argument, parameter, value)
                path[parameter.name] = _path_value(argument, parameter, value)
            elif value in ([], {}) and not parameter.style.media_type:
                continue  # such a style has no text for an empty value
            elif argument.place == "query":
                query += self._pairs(argument, parameter, value)
            elif argument.place == "header":
                text = serialisation.header(parameter.name, value, parameter.style, argument.kinds)
                headers.append((parameter.name, text))
            else:
                cookies += self._pairs(argument, parameter, value)
        if cookies:
            headers.append(("Cookie", "; ".join(cookies)))
        body = None if self._form is None else self._body(self._form, values, headers)
        target = self._template.fill(path)
        query += self.operation.fixed_query
        if query:
            target += "?" + "&".join(query)
        return PlannedRequest(self.operation.method, target, headers, body)

    def _pairs(self, argument: Argument, parameter: Parameter, value: Any) -> list[str]:
        """Return the `name=value` pairs of a query parameter or a cookie."""
        write = _PAIRS[argument.place]
        pairs = write(parameter.name, value, parameter.style, argument.kinds)
        if isinstance(value, dict):
            self._check_names(argument, parameter, map(_pair_name, pairs))
        return pairs

    def _check_names(self, argument: Argument, parameter: Parameter, sent: Iterable[str]) -> None:
        if argument.value is UNSET:
            serialisation.check_names(parameter.name, sent, self._taken[argument.place])

    def replace_files(
        self, given: JsonObject, change: Callable[[JsonObject], JsonObject]
    ) -> JsonObject:
        """Return a copy of a call's arguments with `change` applied to each file in them."""
        if self._form is None:
            return given
        changed = dict(given)
        for each in self._arguments:
            if each.place != "body" or each.name not in given:
                continue
            value = given[each.name]
            if each.target is None:
                changed[each.name] = bodies.replace_files(self._form, value, change)
            else:
                part = bodies.replace_files(self._form, {each.target: value}, change)
                changed[each.name] = part[each.target]
        return changed

    def _values(self, given: JsonObject) -> list[tuple[Argument, Any]]:
        """Return the values to send: from the call, constants, and the operator's defaults."""
        values = []
        for each in self._arguments:
            value = each.value
            if value is UNSET and each.name:
                value = given.get(each.name, UNSET)
            if value is UNSET:
                value = each.default
            if value is not UNSET:
                values.append((each, value))
        return values

    def _sends_null(self, name: str) -> bool:
        return any(each.name == name and each.place == "body" for each in self._arguments)

    def _body_value(self, values: list[tuple[Argument, Any]]) -> tuple[bool, Any]:
        found = {each.target: value for each, value in values if each.place == "body"}
        if self._is_flat:
            is_sent = bool(found) or (self._form is not None and self._form.is_required)
            return is_sent, found
        return None in found, found.get(None)

    def _body(
        self,
        form: bodies.Form,
        values: list[tuple[Argument, Any]],
        headers: list[tuple[str, str]],
    ) -> bytes | None:
        is_sent, value = self._body_value(values)
        if not is_sent:
            return None
        body, content_type = bodies.encode(form, value)
        headers.append(("Content-Type", content_type))
        return body


def compile_tools(
    document: Document,
    tools: Mapping[str, ToolSelection],
    *,
    schemes: Collection[str] = (),
) -> tuple[dict[str, Plan], dict[str, str]]:
    """Make a plan for each listed tool.

    Args:
        tools: The operator's list of tools, keyed by the tool's name.
        schemes: The security schemes that the operator configured. Parameters that carry
            their credentials are not offered as arguments.

    Returns:
        The plans, and why each missing tool is missing; both keyed by the tool's name.
    """
    compiler = _Compiler(document, schemes)
    plans: dict[str, Plan] = {}
    missing: dict[str, str] = {}
    for name, selection in tools.items():
        try:
            plans[name] = compiler.compile(name, selection)
        except DocumentError as error:
            missing[name] = str(error)
        except RecursionError:  # despite the limit on schemas, if the caller's stack is deep
            missing[name] = "a part of the operation is nested too deep"
    return plans, missing


class _Compiler:
    def __init__(self, document: Document, schemes: Collection[str]) -> None:
        self._document = document
        self._translators = {
            has_files: Translator(document, "input", has_files=has_files)
            for has_files in (False, True)
        }
        known = document.security_schemes
        self._filled = {
            (str(scheme.get("in")), _header_name(scheme))
            for scheme in (known.get(name, {}) for name in schemes)
            if scheme.get("type") == "apiKey"
        }
        self._paths: dict[str, list[str]] = {}  # by method
        for key in document.keys:
            method, _, path = key.partition(" ")
            self._paths.setdefault(method, []).append(operations.template_of(path))

    def compile(self, name: str, selection: ToolSelection) -> Plan:
        operation = operations.read(self._document, self._document.find(selection.operation))
        media = argument_module.media_type(operation, selection)
        has_files = media is not None and bodies.kind_of(media.name) == "multipart"
        translator = self._translators[has_files]
        translator.begin_tool()
        found = argument_module.candidates(operation, self._filled)
        of_body, form = argument_module.body_candidates(
            operation, media, selection.body, translator, self._document
        )
        selector = argument_module.Selector(self._document, translator, selection)
        chosen = selector.select(found + of_body)
        template = routes.PathTemplate(
            operation.path,
            self._paths[operation.method],
            [each.target or "" for each in chosen if each.slashes],
        )
        input_schema = _input_schema(chosen, translator)
        has_output = selection.output == "declared"
        output = shapes.of_operation(operation, self._document.references.follow)
        return Plan(
            *(name, selection, operation, chosen, form, template, self._filled, input_schema),
            output if has_output else None,
        )


def _header_name(scheme: JsonObject) -> str:
    name = str(scheme.get("name"))
    return name.lower() if scheme.get("in") == "header" else name


def _input_schema(chosen: Iterable[Argument], translator: Translator) -> JsonObject:
    offered = [each for each in chosen if each.name]
    schema: JsonObject = {
        "type": "object",
        "properties": {each.name: each.schema for each in offered},
        "additionalProperties": False,
    }
    required = [each.name for each in offered if each.required]
    if required:
        schema["required"] = required
    definitions = translator.definitions(each.schema for each in offered)
    if definitions:
        schema["$defs"] = definitions
    return schema


def _pair_name(pair: str) -> str:
    """Return the decoded name of a `name=value` pair."""
    return unquote(pair.partition("=")[0])


def _path_value(argument: Argument, parameter: Parameter, value: Any) -> str:
    name, style = argument.name or parameter.name, parameter.style
    is_plain = style.name == "simple" and not style.media_type
    if is_plain and not argument.slashes and not isinstance(value, dict | list):
        text = serialisation.text(value, argument.kinds)
        routes.check_value(name, text)
        return serialisation.encode(text)
    if argument.slashes:
        text = serialisation.text(value, argument.kinds)
        routes.check_value(name, text, spans=True)
        parts = text.split("/")
        return "/".join(serialisation.path(name, part, style) for part in parts)
    if style.media_type:
        routes.check_value(name, serialisation.text(value))
    else:
        for each in serialisation.texts(value, argument.kinds):
            routes.check_value(name, each)
    return serialisation.path(parameter.name, value, style, argument.kinds)


def _accept(operation: Operation) -> str:
    """Return the Accept header: the media types of successful answers, JSON first.

    If a parameter lists the allowed values of `Accept`, the result is an allowed value.
    """
    allowed = operations.header_values(operation, "Accept")
    allowed = [value for value in allowed if serialisation.is_header_text(value)]
    if allowed:
        return next(filter(operations.is_json, allowed), allowed[0])
    names = dict.fromkeys(
        media_type
        for response in operation.responses
        if response.status.startswith("2")
        for media_type in response.media_types
    )
    ordered = sorted(names, key=lambda name: not operations.is_json(name))
    listed = [name for name in ordered if name != "*/*" and serialisation.is_header_text(name)]
    return ", ".join([*listed, "*/*;q=0.1"]) if listed else "*/*"


def _definition(plan: Plan) -> JsonObject:
    selection, operation = plan.selection, plan.operation
    definition: JsonObject = {"name": plan.name}
    title = selection.title or texts.clip(texts.visible(operation.summary), MAX_TITLE)
    if title:
        definition["title"] = title
    definition["description"] = _description(selection, operation)
    definition["inputSchema"] = plan.shown.schema
    if plan.output_schema is not None:
        definition["outputSchema"] = plan.output_schema
    chosen = selection.annotations
    method = operation.method
    is_read = method in _READ if chosen.read_only is None else chosen.read_only
    hints = {
        "readOnlyHint": is_read,
        "destructiveHint": not is_read if chosen.destructive is None else chosen.destructive,
        "idempotentHint": (
            is_read or method in _IDEMPOTENT if chosen.idempotent is None else chosen.idempotent
        ),
        "openWorldHint": chosen.open_world is not False,
    }
    definition["annotations"] = hints
    return definition


def _description(selection: ToolSelection, operation: Operation) -> str:
    if selection.description:
        return selection.description
    summary = texts.prose(texts.visible(operation.summary))
    first = texts.prose(texts.visible(operation.description)).partition("\n\n")[0]
    parts = [first] if first.startswith(summary) else [summary, first]
    text = "\n\n".join(part for part in parts if part) or operation.key
    if operation.is_deprecated:
        text = f"Deprecated. {text}"
    return texts.clip(text, MAX_DESCRIPTION)
