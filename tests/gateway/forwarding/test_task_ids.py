"""Ids of tasks: sealed, and useful to their user only."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Raw

from interlock.auth import Principal
from interlock.errors import InvalidArguments, RemoteProtocolError
from interlock.gateway.forwarding.task_ids import TaskIds
from tests.layers.support import call_of

ENTRY = call_of().entry
ANNA, BERT = Principal("anna"), Principal("bert")
TASK = Raw(b'{"taskId":"t-17","status":"working","resultType":"task","_meta":{"x":1}}')


def begin(ids: TaskIds, principal: Principal | None = ANNA) -> dict[str, object]:
    found: dict[str, object] = msgspec.json.decode(ids.begun(ENTRY, TASK, principal, "c1").handle)
    return found


def test_task_id_is_decrypted_to_the_servers_id_for_its_user():
    ids = TaskIds(None)
    task = begin(ids)

    sealed = ids.read(str(task["taskId"]), ANNA)

    assert (sealed.tool, sealed.task, sealed.call) == (ENTRY.wire_name, "t-17", "c1")
    assert "t-17" not in str(task)
    assert task["status"] == "working"


def test_an_id_of_another_user_or_gateway_is_as_unknown_as_an_invented_one():
    ids = TaskIds(None)
    id = str(begin(ids)["taskId"])
    texts = set()
    for reader, given, user in (
        (ids, id, BERT),
        (ids, id, None),
        (TaskIds(None), id, ANNA),
        (ids, "t-17", ANNA),
    ):
        with pytest.raises(InvalidArguments) as refused:
            reader.read(given, user)
        texts.add(str(refused.value))

    assert len(texts) == 1


def test_a_task_without_an_id_breaks_the_protocol():
    with pytest.raises(RemoteProtocolError):
        TaskIds(None).begun(ENTRY, Raw(b'{"status":"working"}'), ANNA, "c1")
