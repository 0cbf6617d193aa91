"""JSON Schema: validation against untrusted schemas, and schemas of Python functions."""

from __future__ import annotations

from interlock.schema.validator import Validator, check, check_tool_input, compile

__all__ = ["Validator", "check", "check_tool_input", "compile"]
