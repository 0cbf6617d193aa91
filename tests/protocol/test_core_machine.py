"""R-01, by machine: whatever a peer does, each request ends exactly once and nothing raises."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from interlock.errors import ConnectionClosed, RequestTimeout, StreamEnded
from interlock.protocol import (
    Answer,
    Cancellation,
    Event,
    Failure,
    Overrun,
    Protocol,
    Request,
    RequestOptions,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
METHODS = st.sampled_from(
    ["ping", "initialize", "tools/call", "notifications/progress", "notifications/cancelled"]
)
MESSAGES = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0"])},
    optional={
        "id": st.integers(-1, 12) | st.integers(1, 12).map(str) | JSON,
        "method": METHODS | JSON,
        "params": st.fixed_dictionaries(
            {}, optional={"progressToken": st.integers(0, 12), "progress": JSON, "requestId": JSON}
        )
        | JSON,
        "result": JSON,
        "error": st.fixed_dictionaries({"code": st.integers() | JSON, "message": JSON}) | JSON,
    },
)
BROKEN = [
    b"",
    b"hello",
    b"[",
    b"[]",
    b"\xff",
    b'{"jsonrpc":"2.0","id":%d,"result":NaN}',
    b"[" * 200,
]


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()


class OneConnection(RuleBasedStateMachine):
    """A protocol, and a peer that breaks the rules."""

    ids = Bundle("ids")
    taken = Bundle("taken")

    @initialize(batches=st.booleans(), answers=st.booleans())
    def open(self, batches: bool, answers: bool) -> None:
        self.protocol = Protocol(batches=batches, answers_garbage=answers)
        self.now = 0.0
        self.asked: set[int] = set()
        self.ended: Counter[int] = Counter()
        self.running: set[int | str] = set()
        self.given: Counter[int | str] = Counter()  # requests of the peer, by id
        self.answered: Counter[int | str] = Counter()
        self.closed = False

    # We

    @rule(
        target=ids,
        method=METHODS,
        timeout=st.none() | st.floats(0, 9),
        hard_timeout=st.none() | st.floats(0, 9),
        progress=st.booleans(),
    )
    def ask(
        self, method: str, timeout: float | None, hard_timeout: float | None, progress: bool
    ) -> int:
        try:
            options = RequestOptions(timeout, hard_timeout, print if progress else None)
            id = self.protocol.request(method, now=self.now, options=options)
        except ConnectionClosed:
            assert self.closed
            return 0
        assert id not in self.asked
        self.asked.add(id)
        return id

    @rule(id=ids)
    def cancel(self, id: int) -> None:
        if self.protocol.cancel(id):
            self.ended[id] += 1

    @rule(id=ids)
    def lose_its_answer(self, id: int) -> None:
        """The transport knows that nothing answers it any more, as when an HTTP body is cut."""
        was_open = id in self.asked and not self.ended[id]
        failure = self.protocol.fail(id, StreamEnded("the answer was cut off"))
        assert (failure is not None) == was_open
        self.take([failure] if failure is not None else [])

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        late = self.protocol.expire(now=self.now)
        assert all(isinstance(each.error, RequestTimeout) for each in late)
        self.take(list(late))
        deadline = self.protocol.deadline()
        assert deadline is None or deadline > self.now

    @rule(id=consumes(taken), fails=st.booleans())
    def reply(self, id: int | str, fails: bool) -> None:
        if fails:
            self.protocol.reply_error(id, -32603, "no")
        else:
            self.protocol.reply(id, b"{}")
        self.running.discard(id)

    @rule(chance=st.integers(0, 9))
    def close(self, chance: int) -> None:
        if chance == 0:  # now and then, or there would be little else to see
            self.take(list(self.protocol.close()))
            self.closed = True
            self.running.clear()

    # The peer

    @rule(id=ids, result=JSON)
    def answer(self, id: int, result: Any) -> None:
        was_open = id in self.asked and not self.ended[id]
        self.receive(encode({"jsonrpc": "2.0", "id": id, "result": result}))
        assert not was_open or self.ended[id] == 1

    @rule(id=ids, result=JSON)
    def answer_with_another_id(self, id: int, result: Any) -> None:
        was_open = id in self.asked and not self.ended[id]
        for wrong in (f" {id}", id + 0.5, None):
            self.receive(encode({"jsonrpc": "2.0", "id": wrong, "result": result}))
        assert not was_open or not self.ended[id]

    @rule(id=ids, result=JSON, form=st.sampled_from([str, float]))
    def answer_with_another_form_of_the_id(self, id: int, result: Any, form: Any) -> None:
        was_open = id in self.asked and not self.ended[id]
        self.receive(encode({"jsonrpc": "2.0", "id": form(id), "result": result}))
        assert not was_open or self.ended[id] == 1

    @rule(id=ids, other=ids, in_a_batch=st.booleans())
    def answer_where_another_is_answered(self, id: int, other: int, in_a_batch: bool) -> None:
        """R-09: what comes as the answer to one request ends no other."""
        open_ones = [each for each in (id, other) if each in self.asked and not self.ended[each]]
        answer: Any = {"jsonrpc": "2.0", "id": id, "result": {}}
        if in_a_batch and self.protocol.batches:
            answer = [1, {"id": str(id)}, {"id": id, "result": {}}, answer, answer]
        self.take(self.protocol.receive(encode(answer), now=self.now, request=other))
        assert all(self.ended[each] == (each == id == other) for each in open_ones)

    @rule(id=ids, broken=st.sampled_from(BROKEN))
    def say_garbage_where_one_is_answered(self, id: int, broken: bytes) -> None:
        was_open = id in self.asked and not self.ended[id]
        broken = broken % 0 if b"%d" in broken else broken  # whose it is counts, not its id
        events = self.protocol.receive(broken, now=self.now, request=id)
        self.take(events)
        overrun = any(isinstance(event, Overrun) for event in events)
        assert not was_open or overrun or self.ended[id] == 1

    @rule(id=ids, error=JSON)
    def fail(self, id: int, error: Any) -> None:
        self.receive(encode({"jsonrpc": "2.0", "id": id, "error": error}))

    @rule(id=ids, progress=st.floats(-9, 9))
    def progress(self, id: int, progress: float) -> None:
        params = {"progressToken": id, "progress": progress}
        self.receive(
            encode({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        )

    @rule(target=taken, id=st.integers(0, 5) | st.sampled_from("ab"))
    def be_asked(self, id: int | str) -> int | str:
        self.receive(encode({"jsonrpc": "2.0", "id": id, "method": "ping"}))
        return id

    @rule(id=taken, replies=st.booleans())
    def take_back(self, id: int | str, replies: bool) -> None:
        """Cancel a request of the peer, perhaps after its answer."""
        params = {"requestId": id}
        self.receive(
            encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        )
        if replies:
            self.protocol.reply(id, b"{}")

    @rule(message=MESSAGES)
    def say_anything(self, message: Any) -> None:
        self.receive(encode(message))

    @rule(messages=st.lists(MESSAGES | st.just(1), max_size=5))
    def say_a_batch(self, messages: list[Any]) -> None:
        self.receive(encode(messages))

    @rule(broken=st.sampled_from(BROKEN) | st.binary(max_size=20), id=ids)
    def say_garbage(self, broken: bytes, id: int) -> None:
        self.receive(broken % id if b"%d" in broken else broken)

    # What must hold

    def receive(self, frame: bytes) -> None:
        self.take(self.protocol.receive(frame, now=self.now))

    def take(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Answer | Failure):
                assert not self.closed
                assert isinstance(event.id, int)
                self.ended[event.id] += 1
            elif isinstance(event, Request):
                self.given[event.id] += 1
            elif isinstance(event, Cancellation):
                self.given[event.id] -= 1  # it must not be answered any more

    @invariant()
    def each_request_ends_once(self) -> None:
        assert all(count == 1 for count in self.ended.values())
        assert set(self.ended) <= self.asked
        assert self.protocol.pending == len(self.asked) - len(self.ended)

    @invariant()
    def without_requests_there_is_no_deadline(self) -> None:
        if self.protocol.pending == 0:
            assert self.protocol.deadline() is None
        if self.closed:
            assert self.protocol.pending == self.protocol.running == 0

    @invariant()
    def each_request_of_the_peer_is_answered_at_most_once(self) -> None:
        for frame in self.protocol.frames_to_send():
            assert not self.closed
            sent = json.loads(frame)
            for each in sent if isinstance(sent, list) else [sent]:
                refused = "must not be part of a batch" in each.get("error", {}).get("message", "")
                if "method" not in each and "id" in each and not refused:
                    self.answered[each["id"]] += 1
        # A refused request (too many, id in use) is never given; here there are never too many.
        assert all(self.answered[id] <= self.given[id] for id in self.answered)

    def teardown(self) -> None:
        if hasattr(self, "protocol"):
            self.take(list(self.protocol.close()))
            assert set(self.ended) == self.asked
            assert (self.protocol.pending, self.protocol.deadline()) == (0, None)


TestOneConnection = pytest.mark.slow("a state machine")(OneConnection.TestCase)
TestOneConnection.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
