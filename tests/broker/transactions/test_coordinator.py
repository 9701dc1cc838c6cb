"""The coordinator: how transactions end, stops at every step, time."""

import asyncio
import itertools

import pytest

from tierd.base.errors import DiskFull
from tierd.broker.transactions.machine import TV2, Producer
from tierd.broker.transactions.model import State
from tierd.broker.transactions.ports import Question
from tierd.wire.errors import ErrorCode

from .rig import PARTITIONS, TIMEOUT_MS, A, B, Cut, Rig, S, Steps, begin, refusal, run


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


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_topic_that_is_gone_or_further_on_needs_no_marker(error: ErrorCode) -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.markers.errors[B] = error
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

    asyncio.run(asyncio.wait_for(whole(), 60))


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


def test_what_cannot_be_read_at_the_start_is_ended_when_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tierd.broker.transactions.coordinator.CHECK_S", 0.001)

    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.markers.errors[B] = ErrorCode.KAFKA_STORAGE_ERROR
        await rig.transactions.end("x", producer, commit=True, version=TV2)
        rig.markers.errors.clear()
        rig.log.unreadable = True
        again = await rig.restart()
        while len(rig.log.wrong) < PARTITIONS or not all(rig.log.wrong.values()):
            await asyncio.sleep(0)
        rig.log.unreadable = False
        again.clock.advance(100)
        while B not in again.markers.written:  # nobody asks
            await asyncio.sleep(0)
        await again.stop()

    run(work)


def test_a_transaction_that_takes_too_long_is_aborted() -> None:
    async def work(rig: Rig) -> None:
        producer = await begin(rig)
        rig.clock.advance(TIMEOUT_MS)
        await rig.transactions.step()
        assert rig.transactions.covers(Question("x", producer.id, 0, [A]))
        rig.clock.advance(1)
        await rig.transactions.step()
        await rig.until("x", S.COMPLETE_ABORT)
        assert rig.markers.written[A] == [(producer.id, 1, False)]
        late = rig.transactions.end("x", producer, commit=True, version=TV2)
        assert await refusal(late) is ErrorCode.INVALID_TXN_STATE
        assert await rig.transactions.init("x", TIMEOUT_MS, producer) == (producer.id, 1)
        assert await rig.transactions.init("x", TIMEOUT_MS, None) == (producer.id, 2)

    run(work)


def test_what_fails_over_and_over_is_said_seldom(caplog: pytest.LogCaptureFixture) -> None:
    async def work(rig: Rig) -> None:
        await begin(rig)
        rig.clock.advance(TIMEOUT_MS + 1)
        rig.log.fails = DiskFull("below the reserve")
        for _ in range(10):
            await rig.transactions.step()
        rig.log.fails = None
        await rig.transactions.step()
        await rig.until("x", S.COMPLETE_ABORT)

    run(work)
    said = [vars(record)["times"] for record in caplog.records if record.message == "late transaction not aborted"]
    assert said == [1, 2, 4, 8]


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


def test_what_produce_is_told() -> None:
    async def work(rig: Rig) -> None:
        verify = rig.transactions.verify
        mapping, fenced = ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.PRODUCER_FENCED
        assert await verify(Question("x", 1, 0, [A, B]), add=True) == {A: mapping, B: mapping}
        producer = Producer(*await rig.transactions.init("x", TIMEOUT_MS, None))
        assert await verify(Question("x", producer.id, 0, [A]), add=False) == {A: ErrorCode.TRANSACTION_ABORTABLE}
        assert await verify(Question("x", producer.id, 1, [A]), add=True) == {A: fenced}
        assert await verify(Question("x", producer.id, 0, [A]), add=True) == {}
        assert await verify(Question("x", producer.id, 0, [A, B]), add=False) == {B: ErrorCode.TRANSACTION_ABORTABLE}
        assert rig.transactions.covers(Question("x", producer.id, 0, [A]))
        for other in [("y", producer.id, 0), ("x", producer.id + 1, 0), ("x", producer.id, 1)]:
            assert not rig.transactions.covers(Question(*other, [A]))
        assert not rig.transactions.covers(Question("x", producer.id, 0, [A, B]))
        rig.markers.errors[A] = ErrorCode.KAFKA_STORAGE_ERROR
        await rig.transactions.end("x", producer, commit=True, version=TV2)
        busy = ErrorCode.CONCURRENT_TRANSACTIONS
        assert not rig.transactions.covers(Question("x", producer.id, 0, [A]))
        assert await verify(Question("x", producer.id, 1, [A]), add=True) == {A: busy}
        assert await verify(Question("x", producer.id, 1, [A]), add=False) == {A: busy}
        rig.markers.errors.clear()

    run(work)
