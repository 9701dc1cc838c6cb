"""Compaction beside a real Kafka's: the same batches written to a topic that is not compacted yet, then it becomes so.

From then until the cleaner has reached the active segment; `moved_bytes` are those of the closed segments.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench import rawclient, servers
from bench.measure import MIB, Sample, interleaved, timed
from bench.rows import T0_MS, Row, Run
from bench.servers import Server
from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.cli.client import ask
from tierd.storage.batch import encode_batch
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.names import CLEANER_CHECKPOINT, Suffix, partition_directory
from tierd.storage.records import Record

BATCH_BYTES = 64 * 1024
SEGMENT_BYTES = 16 * MIB
WRITTEN_PER_KEY = 4
_KEY_BYTES = 12
_LOOK_S, _WAIT_S = 0.02, 600.0


def compaction(run: Run, record_bytes: int) -> Row:
    """A quarter of what the other rows move: each key about four times, in random order, keys and values together of
    *record_bytes*, not compressed."""
    place, total_bytes = run.place / f"compaction-{record_bytes}", run.total_bytes // 4
    batches = list(_batches(total_bytes, record_bytes))
    place.mkdir()
    with ExitStack() as stack:
        sets = (f"segment.bytes={SEGMENT_BYTES}", "log.cleaner.backoff.ms=100")
        them = [stack.enter_context(servers.tierd(place / "tierd", None, *sets))]
        if run.with_kafka:
            kafka = stack.enter_context(servers.kafka(place / "kafka", _KAFKA_SETTINGS))
            them += [] if kafka is None else [kafka]
        runs = {server.name: _run(server, batches) for server in them}
        name = f"compaction, {record_bytes} B records"
        samples = interleaved(runs, run.rounds, lambda text: run.said(f"{name}, {text}"))
        memory = {server.name: _with_worker(server).private_mib() for server in them}
    return Row(name=name, bare=None, samples=samples, private_mib=memory)


_KAFKA_SETTINGS = {
    "log.segment.bytes": str(SEGMENT_BYTES),
    "log.cleaner.enable": "true",
    "log.cleaner.backoff.ms": "100",
}


def _batches(total_bytes: int, record_bytes: int) -> Iterator[bytes]:
    dice, value = random.Random(11), b"v" * (record_bytes - _KEY_BYTES)
    per_batch = BATCH_BYTES // (record_bytes + 10)
    keys = max(1, total_bytes // record_bytes // WRITTEN_PER_KEY)
    for number in range(max(1, total_bytes // BATCH_BYTES)):
        at_ms = T0_MS + number
        yield encode_batch([Record(n, at_ms, b"key-%08d" % dice.randrange(keys), value, ()) for n in range(per_batch)])


def _run(server: Server, batches: list[bytes]) -> Callable[[], Sample]:
    def cleaned() -> Sample:
        server.create("cleaned", min_cleanable_dirty_ratio="0")
        rawclient.produce_all(server.address, "cleaned", batches)
        logs = sorted((server.data / partition_directory(_TP)).glob(f"*{Suffix.LOG}"))
        moved, stop = sum(path.stat().st_size for path in logs[:-1]), int(logs[-1].stem)
        sample = timed(lambda: _clean(server, stop, moved), _with_worker(server).pids)
        server.drop("cleaned")
        return sample

    return cleaned


_TP = TopicPartition("cleaned", 0)


def _clean(server: Server, stop: int, moved_bytes: int) -> int:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, "cleaned", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": server.address, "log_level": 4})
    admin.incremental_alter_configs([resource])[resource].result(60)
    pause, deadline = threading.Event(), time.monotonic() + _WAIT_S
    while (_cleaned_to(server) or 0) < stop:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{server.name} has cleaned only up to {_cleaned_to(server)}, not to {stop}")
        pause.wait(_LOOK_S)
    return moved_bytes


def _cleaned_to(server: Server) -> int | None:
    """Kafka writes its checkpoint at the end of each cleaning, tierd with the other checkpoints: it is asked."""
    if server.daemon is None:
        path = server.data / CLEANER_CHECKPOINT
        try:
            return parse_checkpoint(path.read_bytes(), str(path)).get(_TP)
        except (FileNotFoundError, CorruptFile):
            return None
    document = ask(Path(f"{server.data}.tierd") / "control.sock", "status").result
    row = next(row for row in document["partitions"] if row["topic"] == _TP.topic)
    cleaned_to: int | None = row["compaction"]["cleaned_to"]
    return cleaned_to


def _with_worker(server: Server) -> Server:
    """With the worker's process, once there is one."""
    if server.daemon is None:
        return server
    workers = zip(("worker",), server.daemon.worker_pids(), strict=False)
    return replace(server, pids={**server.pids, **dict(workers)})
