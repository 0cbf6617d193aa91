"""Events of a turn that the tests of both encodings use."""

START = {"type": "tool_start", "tool_call_id": "t1", "tool_name": "kb:get", "tool_input": "{}"}
APPROVAL = {
    "type": "approval",
    "approval_id": "a1",
    "tool_call_id": "t1",
    "tool_name": "kb:get",
    "tool_input": "{}",
    "reason": "it deletes",
    "expires": "2026-11-24T00:00:00Z",
}
PROGRESS = {"type": "tool_progress", "tool_call_id": "t1", "progress": 1, "total": 2, "message": ""}
