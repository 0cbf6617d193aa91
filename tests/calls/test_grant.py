"""An approval is used once, and only while what was approved is unchanged."""

from __future__ import annotations

import pytest

from interlock.calls.grant import Grant, GrantLost
from interlock.errors import CallRefused
from interlock.store.database.claims import Claim


def test_failed_claim_does_not_use_the_approval():
    with pytest.raises(GrantLost):
        Grant("a1", Claim("", (), has_failed=True), lambda: True).check()


def test_a_change_after_the_approval_voids_it():
    with pytest.raises(CallRefused, match="a1 is void: policy or tool have changed") as refused:
        Grant("a1", Claim("", ()), lambda: False).check()

    assert refused.value.reason == "approval_required"
