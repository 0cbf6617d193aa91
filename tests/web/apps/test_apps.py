"""Whose the apps of servers are."""

from __future__ import annotations

from typing import Any, cast

import pytest

from interlock.server.http.json_api import Problem
from interlock.web.apps.apps import Apps


def test_app_of_another_user_is_absent():
    apps = Apps(cast("Any", None), cast("Any", None))  # neither is needed
    id = apps.opened("/user:anna", "desk", "c_1")

    assert apps.find("/user:anna", id).server == "desk"
    for owner, wanted in (("/user:bert", id), ("/user:anna", "none"), ("", id)):
        with pytest.raises(Problem, match="no such app is open"):
            apps.find(owner, wanted)
