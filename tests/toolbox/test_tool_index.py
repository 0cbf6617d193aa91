"""Tests for toolbox/tool_index.py."""

from __future__ import annotations

from interlock.toolbox.tool_index import IndexedTool, ToolIndex


def _tool(address: str, description: str = "", **parameters: str) -> IndexedTool:
    server, _, name = address.partition(":")
    properties = {key: {"type": "string", "description": text} for key, text in parameters.items()}
    return IndexedTool(address, server, name, "", description, {"properties": properties})


TOOLS = [
    _tool("tracker:create_issue", "Create an issue in a project.", project="The project's key"),
    _tool("tracker:list_issues", "List the issues of a project."),
    _tool("wiki:createPage", "Create a page."),
    _tool("mail:send-message", "Send an e-mail."),
]


def _found(index: ToolIndex, query: str, limit: int = 5) -> list[str]:
    return [each.address for each in index.search(query, limit)]


def test_a_replaced_tool_is_found_by_its_new_words_only() -> None:
    index = ToolIndex()
    index.replace(TOOLS)
    index.replace([*TOOLS[1:3], _tool("mail:send-message", "Post a letter.")])
    assert _found(index, "letter") == ["mail:send-message"]
    assert _found(index, "create page")[0] == "wiki:createPage"
    assert "tracker:create_issue" not in _found(index, "create issue")
    assert len(index) == 3
