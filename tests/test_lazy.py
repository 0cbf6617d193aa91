"""Names of a package that are loaded when they are first used."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module

import pytest


@pytest.mark.parametrize("package", ["", ".claude", ".gateway", ".openapi"])
def test_unknown_name_is_an_attribute_error_that_names_the_package(package: str):
    module = import_module(f"interlock{package}")

    with pytest.raises(AttributeError, match=rf"module 'interlock{package}' has no .* 'Other'"):
        module.Other  # noqa: B018


@pytest.mark.slow("starts processes")
def test_name_is_loaded_when_it_is_first_used():
    code = "import sys, interlock; a = 'interlock.agent'; b = a in sys.modules; interlock.Agent; "
    ran = subprocess.run(
        [sys.executable, "-c", code + "print(b, a in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.split() == ["False", "True"]
