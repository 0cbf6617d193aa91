"""The tools of an API: the same for every caller, replaced all at once."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.errors import InvalidArguments
from interlock.openapi.catalogue import ApiCatalogue
from interlock.server.subscribers import Subscribers
from interlock.types import Tool

CONTEXT: Any = None  # it makes no difference


class Served:
    def __init__(self, name: str) -> None:
        self.definition = Tool(name=name, input_schema={})

    async def call(self, *_: Any) -> Any:
        raise NotImplementedError


def names(catalogue: ApiCatalogue) -> list[str]:
    return [each.name for each in catalogue.page("tools", "", CONTEXT)[0]]  # type: ignore[union-attr]


def test_tools_are_listed_in_their_order_and_replaced_at_once() -> None:
    catalogue = ApiCatalogue(Subscribers())
    catalogue.install({"b": Served("b"), "a": Served("a")})
    before = catalogue.version
    assert names(catalogue) == ["b", "a"]

    catalogue.install({"c": Served("c")})

    assert names(catalogue) == ["c"]
    assert catalogue.version != before
    assert catalogue.find("tools", "a", CONTEXT) is None
    assert catalogue.find("prompts", "c", CONTEXT) is None


def test_an_api_has_one_page_of_tools_and_nothing_else() -> None:
    catalogue = ApiCatalogue(Subscribers())

    assert catalogue.page("resources", "", CONTEXT) == ([], None)
    with pytest.raises(InvalidArguments, match="the cursor is not valid"):
        catalogue.page("tools", "x", CONTEXT)
