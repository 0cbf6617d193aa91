"""Convert elicitation forms: for legacy clients, and without defaults and nulls that do not fit."""

from __future__ import annotations

import re
import secrets
from typing import Any

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from interlock.errors import CapabilityError, SchemaError
from interlock.protocol.envelope import encode_large
from interlock.revisions import at_least
from interlock.schema.validator import compile
from interlock.types import ElicitParams, JsonObject

_REFERENCE = re.compile(r"#/(\$defs|definitions)/([^/~%]+)")
_VALUES = ("default", "const")  # members of a field whose null is a value
_CHOICE_LISTS = ("enum", "enumNames", "oneOf", "anyOf")
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


def with_fitting_form(method: str, params: Raw) -> Raw:
    """Return a question's params with a form that a person can answer.

    A person who accepts a default that does not fit its field sends an answer that the form
    refuses. So does every person if a member such as a description is null, if a list of choices
    is empty, or if a required field does not exist. Clients know no references in forms.

    Args:
        method: The question's method; only `elicitation/create` has a form.
        params: The question's params, which are returned unchanged if they are malformed.
    """
    if method != "elicitation/create":
        return params
    try:
        members: Any = msgspec.json.decode(params)
    except (msgspec.DecodeError, RecursionError):
        return params
    form = members.get("requestedSchema") if isinstance(members, dict) else None
    if not isinstance(form, dict) or (fitting := fitting_form(form)) is form:
        return params
    return Raw(encode_large({**members, "requestedSchema": fitting}))


def fitting_form(form: JsonObject) -> JsonObject:
    """Return a form without what does not fit, see `with_fitting_form`; the same if all fits."""
    form = _plain(form)
    fields = form.get("properties")
    if not isinstance(fields, dict):
        return form
    with_default = {
        name: field["default"]
        for name, field in fields.items()
        if isinstance(field, dict) and "default" in field
    }
    if not with_default:
        return form
    try:
        checks = compile(encode_large({key: form[key] for key in form if key != "required"}))
    except SchemaError:  # nobody can answer this form, which is reported where it is shown
        return form
    unfit = {name for name, default in with_default.items() if checks.errors({name: default})}
    if not unfit:
        return form
    kept = {
        name: {key: value for key, value in field.items() if key != "default"}
        if name in unfit
        else field
        for name, field in fields.items()
    }
    return {**form, "properties": kept}


def _plain(form: JsonObject) -> JsonObject:
    """Return a form without null for a missing member, and `[]` for no fields, as PHP writes it.

    References and required fields that do not exist are replaced and removed.
    """
    found = {key: each for key, each in form.items() if each is not None}
    fields = found.get("properties")
    if fields == []:
        found["properties"] = fields = {}
    if not isinstance(fields, dict):
        return form if found == form else found
    found["properties"] = {name: _plain_field(each, form) for name, each in fields.items()}
    required = found.get("required")
    if isinstance(required, list):
        found["required"] = [
            each for each in required if not isinstance(each, str) or each in fields
        ]
    return form if found == form else found


def _plain_field(field: Any, form: JsonObject) -> Any:
    """Return a field without a reference to the form's definitions, nulls, and lists of nothing."""
    if not isinstance(field, dict):
        return field
    field = _resolved(field, form)
    return {
        key: each
        for key, each in field.items()
        if (each is not None or key in _VALUES) and (each != [] or key not in _CHOICE_LISTS)
    }


def _resolved(field: JsonObject, form: JsonObject) -> JsonObject:
    seen = set()
    while isinstance(reference := field.get("$ref"), str) and reference not in seen:
        seen.add(reference)
        found = _REFERENCE.fullmatch(reference)
        definitions = form.get(found[1]) if found is not None else None
        target = definitions.get(found[2]) if found and isinstance(definitions, dict) else None
        if not isinstance(target, dict):
            break
        field = {**target, **{key: each for key, each in field.items() if key != "$ref"}}
    return field
