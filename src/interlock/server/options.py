"""The keywords of `Server.tool`, `Server.resource` and `Server.prompt`, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from interlock.types import Annotations, Icon, JsonObject, ToolAnnotations


class ToolKeywords(TypedDict, total=False):
    """What a tool may be given besides its function."""

    name: str  # instead of the function's
    title: str
    description: str  # instead of the docstring's beginning
    annotations: ToolAnnotations
    icons: list[Icon]
    input_schema: Mapping[str, Any]  # used word for word
    output_schema: Mapping[str, Any]
    timeout: float  # seconds that a call may take
    concurrency: int  # calls at once
    meta: JsonObject
    # Runs long. True: clients that know tasks get one at once. "later": from the moment it calls
    # `context.begin_task()`. "required": as True, and other clients are refused.
    task: bool | Literal["required", "later"]


class ItemKeywords(TypedDict, total=False):
    """What a resource or prompt may be given besides its function."""

    name: str
    title: str
    description: str
    mime_type: str
    icons: list[Icon]
    annotations: Annotations
    ttl_ms: int  # how long clients may keep what they read
    cache_scope: str  # "private" or "public"
    meta: JsonObject
