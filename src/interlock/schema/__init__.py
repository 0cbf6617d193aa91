"""JSON Schema both ways: schemas of strangers are checked, Python functions get theirs."""

from __future__ import annotations

from interlock.schema.validator import Validator, check, check_tool_input, compile

__all__ = ["Validator", "check", "check_tool_input", "compile"]
