"""Since when the bucket has not answered, over a store that can be held back or away."""

import threading

import pytest

from kit.clock import FakeClock
from tierd.base.errors import RemoteUnavailable
from tierd.remote.crc import crc32c
from tierd.remote.errors import NotFound
from tierd.remote.memory import MemoryStore
from tierd.remote.store import ObjectInfo
from tierd.remote.watched import WatchedStore


class Moody(MemoryStore):
    """HEAD of `slow` waits for `go`; of `away` there is no answer."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.begun, self.go = threading.Event(), threading.Event()

    def head(self, key: str) -> ObjectInfo:
        if key == "slow":
            self.begun.set()
            self.go.wait()
        if key == "away":
            raise RemoteUnavailable("away")
        return super().head(key)


def test_a_refusal_is_an_answer_and_a_bucket_that_is_away_gives_none() -> None:
    clock = FakeClock()
    store = WatchedStore(Moody(clock), clock)
    with pytest.raises(NotFound):
        store.head("none")
    clock.advance(5_000)
    assert store.calls.silent_ms == 0
    for _ in range(2):
        with pytest.raises(RemoteUnavailable):
            store.head("away")
        clock.advance(5_000)
    assert store.calls.silent_ms == 10_000
    assert store.calls.oldest_ms == 0
    assert list(store.list("")) == []
    assert store.calls.silent_ms == 0


def test_a_call_that_does_not_come_back_is_seen_beside_others_that_do() -> None:
    clock = FakeClock()
    moody = Moody(clock)
    store = WatchedStore(moody, clock)
    store.put("slow", b"x", crc32c=crc32c(b"x"))
    stuck = threading.Thread(target=store.head, args=("slow",))
    stuck.start()
    moody.begun.wait()
    clock.advance(7_000)
    assert (store.calls.silent_ms, store.calls.oldest_ms) == (7_000, 7_000)
    assert [one.key for one in store.list("")] == ["slow"]
    clock.advance(1_000)
    assert (store.calls.silent_ms, store.calls.oldest_ms) == (1_000, 8_000)
    moody.go.set()
    stuck.join()
    assert (store.calls.silent_ms, store.calls.oldest_ms) == (0, 0)
