"""A toolbox's tools for LangChain, as `BaseTool` objects and as middleware."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import MissingExtra

try:
    from interlock.langchain.tool import LangChainTool, tools
except ModuleNotFoundError as error:
    if error.name is None or not error.name.startswith("langchain_core"):
        raise
    raise MissingExtra("interlock.langchain", "langchain") from None

if TYPE_CHECKING:
    from interlock.langchain.middleware import ToolboxMiddleware

__all__ = ["LangChainTool", "ToolboxMiddleware", "tools"]


def __getattr__(name: str) -> object:
    # `langchain.agents` takes 500 ms to load, and the tools do not need it.
    if name != "ToolboxMiddleware":
        raise AttributeError(f"module 'interlock.langchain' has no attribute {name!r}")
    try:
        from interlock.langchain.middleware import ToolboxMiddleware
    except ModuleNotFoundError as error:
        if error.name is None or not error.name.startswith("langchain"):
            raise
        text = "ToolboxMiddleware needs the package langchain: pip install 'langchain>=1.4,<2'"
        raise ImportError(text) from None
    return ToolboxMiddleware
