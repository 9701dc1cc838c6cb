"""The coordinator: what is durable before what, stops at every step, time, and disks that fail."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tierd.base.errors import DiskFull
from tierd.base.ids import TopicPartition
from tierd.broker.transactions.coordinator import EXPIRY_MS
from tierd.broker.transactions.machine import LAST_EPOCH, TV2, Producer, Refused
from tierd.broker.transactions.model import State
from tierd.storage.errors import StorageFailed
from tierd.wire.errors import ErrorCode

from .rig import Cut, Rig, Steps

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
TIMEOUT_MS = 60_000
S = State


def run(work: Callable[[Rig], Coroutine[Any, Any, None]], **limits: int) -> None:
    """*work* with a coordinator that is stopped afterwards."""

    async def whole() -> None:
        rig = Rig(**limits)
        try:
            await work(rig)
        finally:
            await rig.stop()
        assert rig.broken == []

    asyncio.run(asyncio.wait_for(whole(), 30))


async def begin(rig: Rig, name: str = "x", *, version: int = TV2) -> Producer:
    producer = Producer(*await rig.transactions.init(name, TIMEOUT_MS, None))
    await rig.transactions.add(name, producer, [A, B], version=version)
    return producer


async def refusal(work: Awaitable[object]) -> ErrorCode:
    with pytest.raises(Refused) as refused:
        await work
    return refused.value.code


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction(commit: bool) -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        told = await rig.transactions.end("x", producer, commit=commit, version=TV2)
        assert told == (producer.id, 1)
        prepared, done = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
        assert rig.log.states() == [S.EMPTY, S.ONGOING, prepared, done]  # Answered once all is done.
        assert rig.markers.written == {A: [(producer.id, 1, commit)], B: [(producer.id, 1, commit)]}
        assert await rig.transactions.end("x", producer, commit=commit, version=TV2) == told  # a retry
        assert await refusal(rig.transactions.end("x", producer, commit=not commit, version=TV2)) is (
            ErrorCode.INVALID_TXN_STATE
        )
        assert len(rig.log.states()) == 4

    run(work)


def test_older_clients_keep_their_epoch() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig, version=0)
        for _ in range(2):
            assert await rig.transactions.end("x", producer, commit=True, version=0) == (producer.id, 0)
        assert rig.markers.written[A] == [(producer.id, 0, True)]

    run(work)


def test_an_abort_of_nothing_raises_the_epoch() -> None:
    async def work(rig: Rig) -> None:
        producer = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        assert await rig.transactions.end("x", producer, commit=False, version=TV2) == (producer.id, 1)
        assert rig.log.states() == [S.EMPTY, S.PREPARE_ABORT, S.COMPLETE_ABORT]
        assert rig.markers.asked == 0

    run(work)


def test_a_second_producer_aborts_what_the_first_has_open() -> None:
    async def work(rig: Rig) -> None:
        first = await begin(rig)
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, None)) is busy
        await rig.until("x", S.COMPLETE_ABORT)
        second = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        assert second == Producer(first.id, 2)
        assert rig.markers.written[A] == [(first.id, 1, False)]
        fenced = ErrorCode.PRODUCER_FENCED
        assert await refusal(rig.transactions.end("x", first, commit=True, version=TV2)) is fenced
        assert await refusal(rig.transactions.add("x", first, [A], version=TV2)) is fenced
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, first)) is fenced

    run(work)


def test_markers_are_written_until_all_are_there() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.markers.errors[B] = ErrorCode.KAFKA_STORAGE_ERROR
        assert await rig.transactions.end("x", producer, commit=True, version=TV2) == (producer.id, 1)
        assert rig.log.states()[-1] is S.PREPARE_COMMIT
        after = Producer(producer.id, 1)
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        assert await refusal(rig.transactions.add("x", after, [A], version=TV2)) is busy
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, None)) is busy
        assert await refusal(rig.transactions.end("x", producer, commit=True, version=TV2)) is busy
        del rig.markers.errors[B]
        await rig.until("x", S.COMPLETE_COMMIT)
        await rig.transactions.add("x", after, [A], version=TV2)
        assert rig.markers.written == {A: [(producer.id, 1, True)], B: [(producer.id, 1, True)]}

    run(work)


def test_a_topic_that_is_gone_needs_no_marker() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.markers.errors[B] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await rig.transactions.end("x", producer, commit=True, version=TV2)
        assert rig.log.states()[-1] is S.COMPLETE_COMMIT

    run(work)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("after", [True, False])
def test_a_stop_at_every_step(commit: bool, after: bool) -> None:
    """Whatever was durable when the process ended: the next start makes the same of it, whole or not at all."""

    async def once(dies_at: int) -> bool:
        rig = Rig()
        steps = rig.log.steps = rig.markers.steps = Steps(dies_at, after=after)
        producer, decided = Producer(-1, -1), False
        try:
            producer = await begin(rig)
            decided = await rig.transactions.end("x", producer, commit=commit, version=TV2) is not None
            await rig.until("x", S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
        except Cut:
            pass
        if steps.dead:
            assert any(isinstance(error, Cut) for error in rig.broken)
        stored = rig.log.states()
        again = await rig.restart()
        try:
            await _goes_on(again, producer, stored, commit=commit, decided=decided)
        finally:
            await again.stop()
        assert again.broken == []
        return steps.dead

    async def whole() -> None:
        for dies_at in itertools.count(1):
            if not await once(dies_at):
                assert dies_at == 7, "four records and two markers"
                return

    asyncio.run(asyncio.wait_for(whole(), 30))


async def _goes_on(rig: Rig, producer: Producer, stored: list[State | None], *, commit: bool, decided: bool) -> None:
    found = await rig.transactions.describe("x")
    last = stored[-1] if stored else None
    if last is S.ONGOING:
        assert not decided
        assert rig.markers.written == {}
        assert found is not None
        # Its producer has not heard and asks (again).
        owner = Producer(found.producer_id, found.producer_epoch)
        await rig.transactions.end("x", owner, commit=commit, version=TV2)
    elif found is None or found.state is S.EMPTY:
        assert not decided
        assert rig.markers.written == {}
        return
    done = await rig.until("x", S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
    assert done.commits is commit
    assert rig.markers.written == {tp: [(done.producer_id, 1, commit)] for tp in (A, B)}
    if producer.id >= 0:
        assert await rig.transactions.end("x", producer, commit=commit, version=TV2) == (producer.id, 1)
    assert await rig.transactions.init("x", TIMEOUT_MS, None) == (done.producer_id, 2)


def test_a_start_ends_what_was_decided_with_its_own_epoch() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.markers.errors[B] = ErrorCode.KAFKA_STORAGE_ERROR
        await rig.transactions.end("x", producer, commit=True, version=TV2)
        again = await rig.restart()
        del again.markers.errors[B]
        await again.until("x", S.COMPLETE_COMMIT)
        assert again.markers.epochs[-1] == 2
        assert again.markers.written == {A: [(producer.id, 1, True)], B: [(producer.id, 1, True)]}
        await again.stop()

    run(work)


async def slow(rig: Rig) -> list[asyncio.Future[None]]:
    """From here on nothing is durable before its future is set."""
    rig.log.slow = []
    return rig.log.slow


async def appended(disk: list[asyncio.Future[None]], count: int) -> None:
    while len(disk) < count:
        await asyncio.sleep(0)


def test_nothing_is_told_before_it_is_durable() -> None:
    async def work(rig: Rig) -> None:
        producer = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        disk = await slow(rig)
        adding = asyncio.create_task(rig.transactions.verify("x", producer.id, 0, [A], add=True))
        await appended(disk, 1)
        assert not rig.transactions.covers("x", producer.id, 0, [A])
        assert not adding.done()
        disk[0].set_result(None)
        assert await adding == {}
        assert rig.transactions.covers("x", producer.id, 0, [A])
        ending = asyncio.create_task(rig.transactions.end("x", producer, commit=True, version=TV2))
        await appended(disk, 2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert rig.markers.asked == 0
        disk[1].set_result(None)
        await appended(disk, 3)
        assert rig.markers.asked == 1
        assert (await rig.until("x", S.PREPARE_COMMIT)).producer_epoch == 1
        disk[2].set_result(None)
        assert await ending == (producer.id, 1)

    run(work)


def test_no_decision_is_less_durable_than_what_it_decides_on() -> None:
    async def work(rig: Rig) -> None:
        await rig.transactions.end("x", await begin(rig, "x"), commit=True, version=TV2)
        rig.on_disk.add(B)
        await rig.transactions.end("y", await begin(rig, "y"), commit=True, version=TV2)
        # A new epoch always, so that it is not given out twice; the end never for its own sake: it would come again.
        assert rig.log.durable == [True, False, False, False, True, True, True, False]

    run(work)


def test_a_client_that_goes_away_leaves_log_and_memory_alike() -> None:
    async def work(rig: Rig) -> None:
        producer = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        disk = await slow(rig)
        adding = asyncio.create_task(rig.transactions.add("x", producer, [A], version=TV2))
        await appended(disk, 1)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        disk[0].set_result(None)
        await rig.until("x", S.ONGOING)

    run(work)


def test_a_disk_that_fails_changes_nothing() -> None:
    async def work(rig: Rig) -> None:
        away = ErrorCode.COORDINATOR_NOT_AVAILABLE
        producer = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        disk = await slow(rig)
        adding = asyncio.create_task(rig.transactions.add("x", producer, [A], version=TV2))
        await appended(disk, 1)
        disk[0].set_exception(StorageFailed("the disk is gone"))
        assert await refusal(adding) is away
        assert not rig.transactions.covers("x", producer.id, 0, [A])
        rig.log.slow = None
        rig.log.fails = DiskFull("below the reserve")
        assert await refusal(rig.transactions.add("x", producer, [A], version=TV2)) is away
        assert await refusal(rig.transactions.init("new", TIMEOUT_MS, None)) is away
        assert await rig.transactions.describe("new") is None
        assert set(await rig.transactions.listed()) == {"x"}
        rig.log.fails = None
        await rig.transactions.add("x", producer, [A], version=TV2)

    run(work)


def test_a_full_disk_delays_the_end_only() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.markers.errors[A] = ErrorCode.KAFKA_STORAGE_ERROR
        await rig.transactions.end("x", producer, commit=True, version=TV2)
        rig.log.fails = DiskFull("below the reserve")
        rig.markers.errors.clear()
        while len(rig.markers.written) < 2:
            await asyncio.sleep(0)
        assert (await rig.transactions.describe("x")) is not None
        rig.log.fails = None
        await rig.until("x", S.COMPLETE_COMMIT)

    run(work)


def test_a_topic_that_cannot_be_read_or_made() -> None:
    async def work(rig: Rig) -> None:
        rig.log.unreadable = True
        away = ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, None)) is away
        assert await rig.transactions.verify("x", 1, 0, [A], add=True) == {A: away}
        rig.log.made = True
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, None)) is away
        assert await refusal(rig.transactions.listed()) is away
        rig.log.unreadable = False
        await begin(rig)
        assert set(await rig.transactions.listed()) == {"x"}

    run(work)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.clock.advance(TIMEOUT_MS)
        await rig.transactions.step()
        assert rig.transactions.covers("x", producer.id, 0, [A])
        rig.clock.advance(1)
        await rig.transactions.step()
        await rig.until("x", S.COMPLETE_ABORT)
        assert rig.markers.written[A] == [(producer.id, 1, False)]
        late = rig.transactions.end("x", producer, commit=True, version=TV2)
        assert await refusal(late) is ErrorCode.INVALID_TXN_STATE
        assert await rig.transactions.init("x", TIMEOUT_MS, producer) == (producer.id, 1)
        assert await rig.transactions.init("x", TIMEOUT_MS, None) == (producer.id, 2)

    run(work)


def test_the_time_goes_on_while_tierd_is_stopped() -> None:
    async def work(rig: Rig) -> None:
        await begin(rig)
        again = await rig.restart()
        await again.transactions.describe("x")
        again.clock.advance(TIMEOUT_MS + 1)
        await again.transactions.step()
        await again.until("x", S.COMPLETE_ABORT)
        await again.stop()

    run(work)


def test_ids_that_nobody_uses_are_forgotten() -> None:
    async def work(rig: Rig) -> None:
        names = [f"x{number}" for number in range(40)]
        for name in names:
            await rig.transactions.init(name, TIMEOUT_MS, None)
        await begin(rig, "open")
        rig.clock.advance(max(1_000_000, EXPIRY_MS))
        await rig.transactions.init("used", TIMEOUT_MS, None)
        await rig.transactions.step()
        await rig.until("open", S.COMPLETE_ABORT)  # It took too long; that was a use.
        assert set(await rig.transactions.listed()) == {"open", "used"}
        again = await rig.restart()
        assert set(await again.transactions.listed()) == {"open", "used"}
        assert await again.transactions.init("x3", TIMEOUT_MS, None) == (2000, 0)
        await again.stop()

    run(work)


def test_what_produce_is_told() -> None:
    async def work(rig: Rig) -> None:
        verify = rig.transactions.verify
        mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
        assert await verify("x", 1, 0, [A, B], add=True) == {A: mapping, B: mapping}
        producer = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        assert await verify("x", producer.id, 0, [A], add=False) == {A: ErrorCode.TRANSACTION_ABORTABLE}
        assert await verify("x", producer.id, 1, [A], add=True) == {A: fenced}
        assert await verify("x", producer.id, 0, [A], add=True) == {}
        assert await verify("x", producer.id, 0, [A, B], add=False) == {B: ErrorCode.TRANSACTION_ABORTABLE}
        assert rig.transactions.covers("x", producer.id, 0, [A])
        for other in [("y", producer.id, 0), ("x", producer.id + 1, 0), ("x", producer.id, 1)]:
            assert not rig.transactions.covers(*other, [A])
        assert not rig.transactions.covers("x", producer.id, 0, [A, B])
        rig.markers.errors[A] = ErrorCode.KAFKA_STORAGE_ERROR
        await rig.transactions.end("x", producer, commit=True, version=TV2)
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        assert not rig.transactions.covers("x", producer.id, 0, [A])
        assert await verify("x", producer.id, 1, [A], add=True) == {A: busy}
        assert await verify("x", producer.id, 1, [A], add=False) == {A: busy}
        rig.markers.errors.clear()

    run(work)


def test_memory_is_bounded() -> None:
    async def work(rig: Rig) -> None:
        told = [await rig.transactions.init(f"x{number}", TIMEOUT_MS, None) for number in range(9)]
        full = ErrorCode.POLICY_VIOLATION
        assert await refusal(rig.transactions.init("x9", TIMEOUT_MS, None)) is full
        await rig.transactions.init("x8", TIMEOUT_MS, None)
        many = [TopicPartition("t", number) for number in range(9)]
        owner = Producer(*told[0])
        assert await refusal(rig.transactions.add("x0", owner, many, version=TV2)) is full
        await rig.transactions.add("x0", owner, [A], version=TV2)
        await rig.transactions.end("x0", owner, commit=True, version=TV2)  # What is begun can always be ended.
        rig.clock.advance(max(1_000_000, EXPIRY_MS))
        await rig.transactions.step()
        assert await rig.transactions.listed() == {}
        for number in range(9):
            await rig.transactions.init(f"y{number}", TIMEOUT_MS, None)
        assert await refusal(rig.transactions.init("y9", TIMEOUT_MS, None)) is full

    run(work, memory_bytes=10_000)


def test_many_at_once_have_one_owner() -> None:
    async def work(rig: Rig) -> None:
        disk = await slow(rig)

        async def settle() -> None:
            while True:
                for future in disk:
                    if not future.done():
                        future.set_result(None)
                await asyncio.sleep(0)

        settling = asyncio.create_task(settle())
        told = await asyncio.gather(*(rig.transactions.init("x", TIMEOUT_MS, None) for _ in range(20)))
        settling.cancel()
        assert sorted(epoch for _, epoch in told) == list(range(20))
        assert len({producer_id for producer_id, _ in told}) == 1
        assert max(epoch for _, epoch in told) <= LAST_EPOCH

    run(work)
