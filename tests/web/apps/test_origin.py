"""Origins of apps that declare a domain."""

from __future__ import annotations

import pytest

from interlock.errors import ConfigError
from interlock.web.apps.origin import AppsOrigin
from tests.support.rows import each_row

PAGE = "https://tools.example.com"


def test_each_server_has_its_own_constant_origin():
    origin = AppsOrigin.of("https://*.apps.example.org:8443", PAGE)
    first, again, other = (origin.of_server(each) for each in ("crm", "crm", "mail"))

    assert first == again != other
    assert first.startswith("https://")
    assert first.endswith(".apps.example.org:8443")


@each_row(
    ("pattern", "page", "problem"),
    [
        ("https://apps.example.org", PAGE, "not valid"),
        ("http://*.apps.example.org", PAGE, "not valid"),
        ("https://*.apps.example.org/x", PAGE, "not valid"),
        ("https://*.org; script-src *", PAGE, "not valid"),
        ("https://*.apps.example.org", "", "needs gateway.publicUrl"),
        ("https://*.example.com", PAGE, "includes the pages at https://tools.example.com"),
    ],
)
def test_origin_that_would_not_separate_apps_is_refused(pattern: str, page: str, problem: str):
    with pytest.raises(ConfigError, match=problem):
        AppsOrigin.of(pattern, page)
