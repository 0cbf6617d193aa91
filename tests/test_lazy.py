"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.support.rows import each_row


@each_row("package", ["", ".claude", ".gateway", ".openapi", ".store"])
def test_unknown_name_is_an_attribute_error_that_names_the_package(package: str):
    module = import_module(f"interlock{package}")

    with pytest.raises(AttributeError, match=rf"module 'interlock{package}' has no .* 'Other'"):
        module.Other  # noqa: B018
