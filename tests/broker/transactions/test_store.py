"""What the coordinator keeps: durable before it is told, bounded, and as it was when a disk fails."""

import asyncio

import pytest

from tierd.base.errors import DiskFull
from tierd.base.ids import TopicPartition
from tierd.broker.transactions.coordinator import EXPIRY_MS
from tierd.broker.transactions.machine import LAST_EPOCH, TV2, Producer
from tierd.broker.transactions.ports import Question
from tierd.storage.errors import StorageFailed
from tierd.wire.errors import ErrorCode

from .rig import TIMEOUT_MS, A, B, Rig, S, begin, refusal, run


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
        adding = asyncio.create_task(rig.transactions.verify(Question("x", producer.id, 0, [A]), add=True))
        await appended(disk, 1)
        assert not rig.transactions.covers(Question("x", producer.id, 0, [A]))
        assert not adding.done()
        disk[0].set_result(None)
        assert await adding == {}
        assert rig.transactions.covers(Question("x", producer.id, 0, [A]))
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
        assert not rig.transactions.covers(Question("x", producer.id, 0, [A]))
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
        assert await rig.transactions.verify(Question("x", 1, 0, [A]), add=True) == {A: away}
        rig.log.made = True
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, None)) is away
        assert await refusal(rig.transactions.listed()) is away
        rig.log.unreadable = False
        assert await refusal(rig.transactions.init("x", TIMEOUT_MS, None)) is away  # not read again at once
        rig.clock.advance(100)
        await begin(rig)
        assert set(await rig.transactions.listed()) == {"x"}

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
