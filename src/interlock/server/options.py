"""The keywords of `Server.tool`, `Server.resource` and `Server.prompt`, for type checkers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict

from interlock.types import Annotations, Icon, JsonObject, ToolAnnotations


class ToolKeywords(TypedDict, total=False):
    """Options of a tool."""

    name: str  # default: the function's
    title: str
    description: str  # default: the beginning of the docstring
    annotations: ToolAnnotations
    icons: list[Icon]
    input_schema: Mapping[str, Any]  # used word for word
    output_schema: Mapping[str, Any]
    timeout: float  # seconds that a call may take
    concurrency: int  # calls at once
    meta: JsonObject
    # True: clients that support tasks get one at once. "later": they get one when the function
    # calls `context.begin_task()`. "required": as True, and other clients are refused.
    task: bool | Literal["required", "later"]


class ItemKeywords(TypedDict, total=False):
    """Keyword arguments that describe a resource or prompt of a server."""

    name: str
    title: str
    description: str
    mime_type: str
    icons: list[Icon]
    annotations: Annotations
    ttl_ms: int  # how long clients may cache the contents
    cache_scope: str  # "private" or "public"
    meta: JsonObject
