"""Convert elicitation forms for legacy clients."""

from __future__ import annotations

import secrets

from msgspec.structs import replace

from interlock.errors import CapabilityError
from interlock.revisions import at_least
from interlock.types import ElicitParams, JsonObject

_CHOICES = "2025-11-25"  # the first revision with titled and multiple choices, and all defaults


def for_legacy(question: ElicitParams, revision: str) -> ElicitParams:
    """Rewrite a question for a legacy client.

    Raises:
        CapabilityError: The form has a field that the revision cannot express; the text names it.
    """
    if question.mode == "url":
        # 2025-11-25, the only legacy revision with this mode, requires an id.
        return replace(question, elicitation_id=secrets.token_urlsafe(16))
    form = question.requested_schema or {}
    if at_least(revision, _CHOICES) or not isinstance(form.get("properties"), dict):
        return question
    fields = {name: _field(name, field) for name, field in form["properties"].items()}
    return replace(question, requested_schema={**form, "properties": fields})


def _field(name: str, field: JsonObject) -> JsonObject:
    if field.get("type") == "array":
        raise CapabilityError(
            f"field {name!r}: the client's revision has no lists of choices; use single choices"
        )
    if field.get("type") != "boolean":
        field = {key: value for key, value in field.items() if key != "default"}
    if "oneOf" in field:
        choices = field.pop("oneOf")
        field["enum"] = [each["const"] for each in choices]
        field["enumNames"] = [each.get("title", each["const"]) for each in choices]
    return field
