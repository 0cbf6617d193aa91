"""Headers that a user gives: the valid ones, and how they replace others."""

from __future__ import annotations

import pytest

from interlock.errors import ConfigError
from interlock.transports.http_headers import _RESERVED, check_headers, merged
from tests.support.rows import each_row
from tests.transports.support import SECRET


@each_row(
    ("name", "value", "why"),
    [
        ("", "x", "is not a valid name of an HTTP header"),
        ("X Y", "x", "is not a valid name of an HTTP header"),
        ("X\r\nY", "x", "is not a valid name of an HTTP header"),
        ("X-Key", f"{SECRET}\r\nHost: b", "has an invalid character"),
        ("X-Key", f"{SECRET}\0", "has an invalid character"),
        ("X-Key", f"{SECRET}\u2028", "has an invalid character"),
        *((name, "x", "is set by the client") for name in sorted(_RESERVED)),
        ("Mcp-Param-Region", "x", "is set by the client"),
        ("MCP-SESSION-ID", "x", "is set by the client"),
    ],
)
def test_invalid_header_is_refused(name: str, value: str, why: str):
    with pytest.raises(ConfigError, match=why) as told:
        check_headers({name: value})
    assert SECRET not in str(told.value)


def test_own_headers_replace_those_of_the_same_name_in_any_case():
    headers = {"X-Tenant": "red", "x-tenant": "blue", "Accept": "*/*"}

    assert merged(headers, {"X-TENANT": "green"}) == {"Accept": "*/*", "X-TENANT": "green"}
