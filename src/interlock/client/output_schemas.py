"""Validation of tool results against output schemas."""

from __future__ import annotations

import logging

from msgspec import UNSET

from interlock import schema
from interlock.errors import SchemaError
from interlock.protocol.envelope import encode
from interlock.types import CallToolResult, JsonObject, Tool

_log = logging.getLogger("interlock.client")


class OutputSchemas:
    """Checks results against the output schemas of the tools that a server has listed.

    Attributes:
        by_tool: The output schemas, keyed by the tool's name.
    """

    def __init__(self) -> None:
        self.by_tool: dict[str, JsonObject] = {}
        self._validators: dict[str, schema.Validator | None] = {}
        self._warned: set[str] = set()  # tools whose schema was logged as not usable

    def replace(self, tools: list[Tool]) -> None:
        self.by_tool = {
            tool.name: tool.output_schema for tool in tools if tool.output_schema is not None
        }
        self._validators.clear()

    def problem(self, name: str, result: CallToolResult) -> str:
        """Return how a result breaks its tool's output schema, as a predicate; "" if it does not.

        The tool must have a schema. A schema that is not usable is not checked.
        """
        if name not in self._validators:
            self._validators[name] = self._validator(name, self.by_tool[name])
        validator = self._validators[name]
        if validator is None:
            return ""
        if result.structured_content is UNSET:
            return "has no structuredContent, which its outputSchema demands"
        errors = validator.errors(result.structured_content)
        return f"does not fit its outputSchema: {'; '.join(errors)}" if errors else ""

    def _validator(self, name: str, output_schema: JsonObject) -> schema.Validator | None:
        try:
            return schema.compile(encode(output_schema))
        except SchemaError as error:
            if name not in self._warned:
                _log.warning("outputSchema of tool %r is not usable: %s", name, error)
            self._warned = {*self._warned, name} & {*self.by_tool}
            return None
