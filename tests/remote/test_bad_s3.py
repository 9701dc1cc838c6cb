"""An S3Store before a server that hangs, drips, breaks off or refuses: each request ends, no half answer counts."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from kit import weed
from kit.bad_s3 import bad_s3
from kit.faults import Asked, Fault, Plan, always
from kit.weed import Weed
from tierd.base.clock import SystemClock
from tierd.base.errors import RemoteUnavailable
from tierd.remote import crc, watchdog
from tierd.remote.errors import AccessRefused
from tierd.remote.probe import probe
from tierd.remote.retry import RetryPolicy
from tierd.remote.s3 import S3Store
from tierd.remote.store import PIECE_BYTES
from tierd.remote.watchdog import LEAST_BYTES, LONGEST, QUIET, Watched, why_hung

TIMEOUT_MS = 200
PATIENT_MS = 30_000
"""For what is to be answered, however slow the machine."""
BIG = bytes(range(256)) * (PIECE_BYTES // 256 + 1)
ONCE = RetryPolicy(tries=1)


@pytest.fixture(scope="module")
def bucket(weed_server: Weed) -> str:
    """With one object that is there."""
    name = weed_server.bucket("bad-store")
    with store_of(weed_server.endpoint, name, ONCE, PATIENT_MS) as good:
        put(good, "there", BIG)
    return name


@contextmanager
def before(
    server: Weed, bucket: str, plan: Plan, policy: RetryPolicy = ONCE, timeout_ms: int = TIMEOUT_MS
) -> Iterator[S3Store]:
    with bad_s3(server.endpoint, plan) as bad, store_of(bad.endpoint, bucket, policy, timeout_ms) as store:
        yield store


@contextmanager
def store_of(endpoint: str, bucket: str, policy: RetryPolicy | None, timeout_ms: int) -> Iterator[S3Store]:
    options = weed.options(endpoint, timeout_ms=timeout_ms)
    store = S3Store(bucket, options, clock=SystemClock(), policy=policy)
    try:
        yield store
    finally:
        store.close()


def put(store: S3Store, key: str, data: bytes) -> None:
    store.put(key, data, crc32c=crc.crc32c(data))


REQUESTS: dict[str, Callable[[S3Store], object]] = {
    "put": lambda store: put(store, "k", b"x"),
    "put in pieces": lambda store: put(store, "k", BIG),
    "get": lambda store: store.get("there"),
    "range": lambda store: store.get("there", 5, 9),
    "pieces": lambda store: store.pieces("there", 0, len(BIG), b"".join),
    "head": lambda store: store.head("there"),
    "list": lambda store: list(store.list("")),
    "folders": lambda store: list(store.list_folders("")),
    "delete": lambda store: store.delete(["gone"]),
    "begin": lambda store: store.begin_upload("parts").abort(),
    "uploads": lambda store: list(store.list_uploads("")),
}


@pytest.mark.s3
@pytest.mark.parametrize("fault", [Fault.DRIP, Fault.STALL, Fault.RESET, Fault.LOST])
def test_every_request_ends(weed_server: Weed, bucket: str, fault: Fault) -> None:
    with before(weed_server, bucket, always([fault])) as store:
        for name, request in REQUESTS.items():
            with pytest.raises(RemoteUnavailable):
                pytest.fail(f"{name} gave {request(store)}")


@pytest.mark.s3
def test_an_answer_that_breaks_off_anywhere_is_none(weed_server: Weed, bucket: str) -> None:
    """Its headers, too: they end where the connection does, for http.client."""
    for seed in range(4):
        plan = Plan(seed, 1, weights={Fault.TRUNCATED: 1})
        with before(weed_server, bucket, plan) as store:
            for name, request in REQUESTS.items():
                with pytest.raises(RemoteUnavailable):
                    pytest.fail(f"{name} gave {request(store)}")


@pytest.mark.s3
def test_a_hanging_request_is_sent_again(weed_server: Weed, bucket: str) -> None:
    first = Plan(1, 1, most=1, weights={Fault.DRIP: 1})
    with before(weed_server, bucket, first, RetryPolicy(tries=9, limit_ms=60_000), 500) as store:
        put(store, "again", b"x")
        assert store.requests["put_object"] >= 2
        assert store.get("again") == b"x"


@pytest.mark.s3
def test_a_head_that_is_refused_for_its_credentials(weed_server: Weed, bucket: str) -> None:
    """It has no body that could say so."""
    with before(weed_server, bucket, always([Fault.EXPIRED]), ONCE, PATIENT_MS) as store, pytest.raises(AccessRefused):
        store.head("there")


@pytest.mark.s3
@pytest.mark.parametrize("fault", [Fault.SLOW_DOWN, Fault.LOST, Fault.DONE_500, Fault.RESET])
def test_a_probe_is_not_misled(weed_server: Weed, bucket: str, fault: Fault) -> None:
    """Each second request fails; a repeated condition that does not hold is still no success."""
    with store_of(weed_server.endpoint, bucket, ONCE, PATIENT_MS) as good:
        right = probe(good, "probe/")
    count = iter(range(1000))

    def every_other(_: Asked) -> bool:
        return next(count) % 2 == 0

    again = RetryPolicy(tries=5, first_ms=1, longest_ms=2, limit_ms=60_000)
    with before(weed_server, bucket, always([fault], only=every_other), again, PATIENT_MS) as store:
        report = probe(store, "probe/")
    assert report.one_writer
    assert report.ranges
    assert report.create_if_absent == right.create_if_absent


@pytest.mark.s3
def test_one_that_was_silent_for_a_whole_time_out_is_sent_again(weed_server: Weed, bucket: str) -> None:
    """With the tries that a store has by itself."""
    once = Plan(1, 1, most=1, weights={Fault.STALL: 1})
    with bad_s3(weed_server.endpoint, once) as bad, store_of(bad.endpoint, bucket, None, 2_000) as store:
        assert store.get("there", 0, 3) == BIG[:3]
        assert store.requests["get_object"] > 1


def test_when_a_request_hangs() -> None:
    one = Watched(begun_ms=1_000, may_be_quiet=False, since_ms=1_000, moved=10)
    quiet, longest = 1_000 + QUIET * TIMEOUT_MS, 1_000 + LONGEST * TIMEOUT_MS
    assert why_hung(one, 10, quiet, TIMEOUT_MS) is None
    assert why_hung(one, 12, quiet + 1, TIMEOUT_MS) == f"only 2 bytes moved in {QUIET * TIMEOUT_MS + 1} ms"
    assert why_hung(one, None, quiet + 1, TIMEOUT_MS) is None, "nobody counts"
    one.may_be_quiet = True
    assert why_hung(one, 12, longest, TIMEOUT_MS) is None
    assert why_hung(one, 12 + LEAST_BYTES, longest + 1, TIMEOUT_MS) is not None
    one.size_bytes = 3 * 1024 * 1024
    assert why_hung(one, 12 + LEAST_BYTES, longest + 1, TIMEOUT_MS) is None, "a large body takes its time"
    assert why_hung(one, 12 + LEAST_BYTES, longest + 3 * TIMEOUT_MS + 1, TIMEOUT_MS) is not None


def test_the_kernel_counts_what_moves() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        there, _ = server.accept()
        with there:
            before = watchdog._moved(client)
            there.sendall(b"12345")
            assert client.recv(5, socket.MSG_WAITALL) == b"12345"
            assert before is not None
            assert watchdog._moved(client) == before + 5
        assert watchdog._moved(None) is None
