"""Batches of very many records: others are answered meanwhile, and they are appended as they came. Real sockets."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from broker.client import T0, Client, batch, offsets_of
from broker.running import Running, running
from kit.tiers import until
from tierd.base.clock import SystemClock
from tierd.base.errors import WorkerGone
from tierd.base.ids import TopicPartition
from tierd.broker import looking
from tierd.broker.produce_gate import ProduceGate
from tierd.broker.transactions.ports import Question
from tierd.storage.batch import encode_batch
from tierd.storage.compression import Codec
from tierd.storage.look import SHORT_RECORDS, Look, Verdict, look_at_bytes
from tierd.storage.records import Record
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode
from tierd.worker.link import WorkerLink

MANY = 300_000
FUTURE = 4_000_000_000_000
CASES: list[tuple[dict[str, str], int, ErrorCode]] = [
    ({}, FUTURE, ErrorCode.INVALID_TIMESTAMP),
    ({"tierd_validate_records": "full"}, T0, ErrorCode.NONE),
    ({"cleanup_policy": "compact"}, T0, ErrorCode.NONE),
]


class Held:
    """Looks only when it may, and in this process."""

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.looked = 0
        self.error: Exception | None = None

    async def look(self, batch: memoryview, look: Look) -> Verdict:
        self.looked += 1
        await self.may.wait()
        if self.error is not None:
            raise self.error
        return look_at_bytes(batch, look)

    async def close(self) -> None:
        self.may.set()


@pytest.fixture(scope="module")
def many() -> dict[int, bytes]:
    """A batch of MANY tiny records by their time, the last a millisecond later; far below a MiB when compressed."""
    return {
        t0: bytes(encode_batch([Record(n, t0 + (n == MANY - 1), b"k", b"") for n in range(MANY)], codec=Codec.ZSTD))
        for t0 in (T0, FUTURE)
    }


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def broker(tmp_path: Path, held: Held) -> Iterator[Running]:
    with running(tmp_path, looker=held) as started:
        yield started
        started.call(held.may.set)


def send_produce(client: Client, topic: str, records: bytes, **fields: Any) -> None:
    data = [{"name": topic, "partition_data": [{"index": 0, "records": records}]}]
    client.send(0, 9, **{"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": data, **fields})


def produced(client: Client) -> Any:
    return client.answer(0, 9).responses[0].partition_responses[0]


def wait_until_asked(broker: Running, held: Held, times: int = 1) -> None:
    async def asked() -> None:
        while held.looked < times:
            await asyncio.sleep(0)

    broker.run(asked())


def keyless(count: int) -> bytes:
    return bytes(encode_batch([Record(n, T0, b"k" if n else None, b"v") for n in range(count)]))


def see_that_others_are_answered(other: Client, one: Client) -> None:
    """Until *one*, who has asked for very much, has its answer: *other* waits for a part of that time at most."""
    begun, slowest, asked = time.monotonic(), 0.0, 0
    while not one.has_answer():
        at = time.monotonic()
        other.call(int(ApiKey.API_VERSIONS), 3, client_software_name="t", client_software_version="1")
        slowest, asked = max(slowest, time.monotonic() - at), asked + 1
    assert asked > 4
    assert slowest < (time.monotonic() - begun) / 2


@pytest.mark.parametrize(("config", "t0", "error"), CASES, ids=["future", "full", "compacted"])
def test_others_are_answered_while_very_many_records_are_looked_at(
    tmp_path: Path, many: dict[int, bytes], config: dict[str, str], t0: int, error: ErrorCode
) -> None:
    link = WorkerLink(SystemClock())
    with running(tmp_path, looker=link) as broker, Client(broker.address) as one, Client(broker.address) as other:
        one.create("t", **config)
        one.produce("t", batch(SHORT_RECORDS + 1))  # starts the worker
        end = broker.call(lambda: broker.log("t").log_end)
        send_produce(one, "t", many[t0])
        see_that_others_are_answered(other, one)
        answer = produced(one)
        assert answer.error_code == error
        assert answer.base_offset == (end if error is ErrorCode.NONE else -1)
        assert link.starts == 1


def test_others_are_answered_while_a_time_is_looked_up_among_very_many(tmp_path: Path, many: dict[int, bytes]) -> None:
    with running(tmp_path) as broker, Client(broker.address) as one, Client(broker.address) as other:
        one.create("t")
        assert one.produce("t", many[T0]).base_offset == 0
        for timestamp in (T0 + 1, -3):
            row = {"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}
            one.send(int(ApiKey.LIST_OFFSETS), 8, replica_id=-1, topics=[{"name": "t", "partitions": [row]}])
            see_that_others_are_answered(other, one)
            found = one.answer(int(ApiKey.LIST_OFFSETS), 8).topics[0].partitions[0]
            assert (found.offset, found.timestamp) == (MANY - 1, T0 + 1)


def test_a_partition_takes_batches_in_the_order_in_which_they_came(broker: Running, held: Held) -> None:
    with Client(broker.address) as one, Client(broker.address) as two, Client(broker.address) as three:
        one.create("t", 2, cleanup_policy="compact")
        send_produce(one, "t", batch(SHORT_RECORDS + 1))
        wait_until_asked(broker, held)
        send_produce(two, "t", batch(1))
        assert three.produce("t", batch(1), partition=1).base_offset == 0  # another partition waits for nobody
        assert broker.call(lambda: broker.log("t").log_end) == 0
        broker.call(held.may.set)
        assert produced(one).base_offset == 0
        assert produced(two).base_offset == SHORT_RECORDS + 1
        assert three.produce("t", batch(1)).base_offset == SHORT_RECORDS + 2
        assert held.looked == 1


def test_what_was_received_is_appended_though_its_client_has_gone(broker: Running, held: Held) -> None:
    with Client(broker.address) as client:
        client.create("t", tierd_validate_records="full")
        send_produce(client, "t", batch(SHORT_RECORDS + 1), acks=0)
        wait_until_asked(broker, held)
    broker.call(held.may.set)
    with Client(broker.address) as client:
        assert client.produce("t", batch(1)).base_offset == SHORT_RECORDS + 1


def test_a_stop_waits_for_what_was_received(tmp_path: Path) -> None:
    held = Held()
    with running(tmp_path, looker=held) as broker, Client(broker.address) as client:
        client.create("t", tierd_validate_records="full")
        send_produce(client, "t", batch(SHORT_RECORDS + 1), acks=0)
        wait_until_asked(broker, held)
        stopping = asyncio.run_coroutine_threadsafe(broker.broker.stop(), broker._loop)
        broker.call(held.may.set)
        stopping.result(60)
        assert broker.log("t").log_end == SHORT_RECORDS + 1


def test_a_failure_without_an_answer_closes_the_connection(broker: Running, held: Held) -> None:
    with Client(broker.address) as client:
        client.create("t", cleanup_policy="compact")
        send_produce(client, "t", keyless(SHORT_RECORDS + 1), acks=0)
        broker.call(held.may.set)
        assert client.closed()


@pytest.mark.parametrize("count", [3, SHORT_RECORDS + 1], ids=["short", "long"])
def test_refusals_are_the_same_however_many_records(broker: Running, held: Held, count: int) -> None:
    broker.call(held.may.set)
    with Client(broker.address) as client:
        client.create("keys", cleanup_policy="compact")
        refused = client.produce("keys", keyless(count))
        assert (refused.error_code, refused.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert [row.batch_index for row in refused.record_errors] == [0]
        client.create("times")
        late = client.produce("times", batch(count, t0=FUTURE))
        assert late.error_code == ErrorCode.INVALID_TIMESTAMP
        assert len(late.record_errors) == min(count, 100)
        client.create("full", tierd_validate_records="full")
        whole = batch(count, codec=Codec.ZSTD)
        refused = client.produce("full", with_crc(whole[:61] + bytes(len(whole) - 61)))
        assert refused.error_code == ErrorCode.INVALID_RECORD
        assert "do not decode" in refused.error_message
        assert client.produce("full", whole).base_offset == 0


def with_crc(raw: bytes) -> bytes:
    from crc32c import crc32c

    return raw[:17] + crc32c(raw[21:]).to_bytes(4, "big") + raw[21:]


@pytest.mark.parametrize("count", [3, SHORT_RECORDS + 1], ids=["short", "long"])
def test_a_wrong_largest_timestamp_is_put_right(broker: Running, held: Held, count: int) -> None:
    broker.call(held.may.set)
    with Client(broker.address) as client:
        client.create("t", tierd_validate_records="full")
        raw = batch(count)
        wrong = with_crc(raw[:35] + (T0 + 10_000).to_bytes(8, "big") + raw[43:])
        assert client.produce("t", wrong).error_code == ErrorCode.NONE
        assert client.list_offsets("t", -3).timestamp == T0 + count - 1


def test_a_batch_sent_again_while_the_first_is_looked_at_is_a_duplicate(broker: Running, held: Held) -> None:
    raw = batch(SHORT_RECORDS + 1, producer_id=1, producer_epoch=0, base_sequence=0)
    with Client(broker.address) as one, Client(broker.address) as two:
        one.create("t", tierd_validate_records="full")
        send_produce(one, "t", raw)
        wait_until_asked(broker, held)
        send_produce(two, "t", raw)
        broker.call(held.may.set)
        assert produced(one).base_offset == produced(two).base_offset == 0
        assert broker.call(lambda: broker.log("t").log_end) == SHORT_RECORDS + 1


def test_a_topic_that_was_deleted_meanwhile_takes_nothing(broker: Running, held: Held) -> None:
    with Client(broker.address) as one, Client(broker.address) as two:
        one.create("t", cleanup_policy="compact")
        send_produce(one, "t", batch(SHORT_RECORDS + 1))
        wait_until_asked(broker, held)
        two.call(int(ApiKey.DELETE_TOPICS), 5, topic_names=["t"], timeout=5000)
        two.create("t")
        broker.call(held.may.set)
        assert produced(one).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_settings_that_change_meanwhile_are_held_to(broker: Running, held: Held) -> None:
    with Client(broker.address) as one, Client(broker.address) as two:
        one.create("t", tierd_validate_records="full")
        send_produce(one, "t", keyless(SHORT_RECORDS + 1))
        wait_until_asked(broker, held)
        configs = [{"name": "cleanup.policy", "config_operation": 0, "value": "compact"}]
        resources = [{"resource_type": 2, "resource_name": "t", "configs": configs}]
        two.call(int(ApiKey.INCREMENTAL_ALTER_CONFIGS), 1, resources=resources, validate_only=False)
        broker.call(held.may.set)
        assert produced(one).error_code == ErrorCode.INVALID_RECORD
        assert held.looked == 2


def test_without_a_verdict_the_client_tries_again(broker: Running, held: Held) -> None:
    held.error = WorkerGone("killed")
    broker.call(held.may.set)
    with Client(broker.address) as client:
        client.create("t", cleanup_policy="compact")
        assert client.produce("t", batch(SHORT_RECORDS + 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        held.error = None
        assert client.produce("t", batch(SHORT_RECORDS + 1)).base_offset == 0


def test_a_worker_that_is_killed_is_started_again(tmp_path: Path, many: dict[int, bytes]) -> None:
    link = WorkerLink(SystemClock())
    with running(tmp_path, looker=link) as broker, Client(broker.address) as client:
        client.create("t", cleanup_policy="compact")
        client.produce("t", batch(SHORT_RECORDS + 1))
        send_produce(client, "t", many[T0])
        pid = broker.call(lambda: link.pid)
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        assert produced(client).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert client.produce("t", batch(SHORT_RECORDS + 1)).base_offset == SHORT_RECORDS + 1
        assert broker.call(lambda: link.starts) == 2


def test_a_worker_that_hangs_is_ended(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    link = WorkerLink(SystemClock())
    with running(tmp_path, looker=link) as broker, Client(broker.address) as one, Client(broker.address) as two:
        one.create("t", cleanup_policy="compact")
        assert one.produce("t", batch(SHORT_RECORDS + 1)).base_offset == 0
        link.look_s, link.silent_s = 0.1, 0.5
        pid = broker.call(lambda: link.pid)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        send_produce(one, "t", batch(SHORT_RECORDS + 1))
        wait_for_last(broker)
        send_produce(two, "t", batch(1))
        assert produced(one).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert produced(two).error_code == ErrorCode.NONE
    assert "the worker does not answer: it is ended" in caplog.messages


def wait_for_last(broker: Running) -> None:
    """Until a batch is being looked at."""
    until("a batch that is looked at", lambda: broker.call(lambda: bool(broker.broker.parts.behind.last)))


def test_without_a_worker_a_thread_looks(tmp_path: Path) -> None:
    with running(tmp_path) as broker, Client(broker.address) as client:
        client.create("t", cleanup_policy="compact")
        assert client.produce("t", batch(SHORT_RECORDS + 1)).base_offset == 0
        assert offsets_of(client.fetch("t", 0).records) == list(range(SHORT_RECORDS + 1))


def test_what_waits_is_bounded(broker: Running, held: Held, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = batch(SHORT_RECORDS + 1)
    monkeypatch.setattr(looking, "MOST_BYTES", len(raw) + 1)
    with Client(broker.address) as one, Client(broker.address) as two:
        one.create("t", cleanup_policy="compact")
        send_produce(one, "t", raw)
        wait_until_asked(broker, held)
        refused = two.produce("t", raw)
        assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "try again" in refused.error_message
        broker.call(held.may.set)
        assert produced(one).base_offset == 0
        assert two.produce("t", raw).base_offset == SHORT_RECORDS + 1


class Coordinator:
    """A verifier whose transaction ends after *ongoing* questions."""

    def __init__(self, ongoing: int) -> None:
        self.left = ongoing

    def covers(self, question: Question) -> bool:
        self.left -= 1
        return self.left >= 0

    async def verify(self, question: Question, *, add: bool) -> Mapping[TopicPartition, ErrorCode]:
        return dict.fromkeys(question.partitions, ErrorCode.TRANSACTION_ABORTABLE)


@pytest.mark.parametrize(("ongoing", "error"), [(1, ErrorCode.INVALID_TXN_STATE), (2, ErrorCode.NONE)])
def test_a_transaction_that_has_ended_meanwhile_takes_no_more(
    broker: Running, held: Held, ongoing: int, error: ErrorCode
) -> None:
    produce = broker.broker.parts.produce
    produce._gate = ProduceGate(broker.partitions, Coordinator(ongoing))
    raw = batch(SHORT_RECORDS + 1, producer_id=1, producer_epoch=0, base_sequence=0, attributes=0x10)
    with Client(broker.address) as client:
        client.create("t", tierd_validate_records="full")
        send_produce(client, "t", raw, transactional_id="x")
        broker.call(held.may.set)
        assert produced(client).error_code == error
