"""JSON in the canonical form of RFC 8785."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.text.canonical_json import canonical_json
from tests.support.rows import each_row


@each_row(
    "value, canonical",
    [
        # The examples of RFC 8785, sections 3.2.2 and 3.2.3
        (
            [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27, True, None],
            "[333333333.3333333,1e+30,4.5,0.002,1e-27,true,null]",
        ),
        ('\u20ac$\u000f\nA\'B"\\\\"/', '"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"'),
        (
            dict.fromkeys(("\u20ac", "\r", "\ufb33", "1", "\U0001f600", "\x80", "\xf6"), 0),
            '{"\\r":0,"1":0,"\x80":0,"ö":0,"€":0,"😀":0,"\ufb33":0}',
        ),
        # Its appendix B
        (
            [0.0, -0.0, 5e-324, -5e-324, 9007199254740992, 295147905179352830000, 1e21, 1e23],
            "[0,0,5e-324,-5e-324,9007199254740992,295147905179352830000,1e+21,1e+23]",
        ),
        ([999999999999999900000, 0.000001, 1e-7, 333333333.3333332, -1.5, 100], None),
    ],
)
def test_a_value_has_the_bytes_of_the_specification(value: Any, canonical: str | None) -> None:
    expected = canonical or "[999999999999999900000,0.000001,1e-7,333333333.3333332,-1.5,100]"
    assert canonical_json(value).decode() == expected


@each_row("value", [float("nan"), float("inf"), 10**400])
def test_a_number_that_is_not_finite_has_no_canonical_form(value: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json(value)
