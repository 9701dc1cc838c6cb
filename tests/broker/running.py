"""A broker on a loop in a thread, over real log directories; plain blocking clients; a bucket made of a file."""

import asyncio
import dataclasses
import os
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tierd.base.clock import Clock, SystemClock
from tierd.base.disk import Disk
from tierd.base.errors import RemoteUnavailable
from tierd.base.ids import PartitionId, Uuid
from tierd.broker.broker import Broker
from tierd.broker.homes import Home
from tierd.broker.local_tier import LocalLog
from tierd.broker.partitions import Partitions, settings_for, topic_id_for
from tierd.broker.ports import RemoteTier
from tierd.broker.registry import Registry
from tierd.config.model import Listener, Remote, Settings
from tierd.config.places import HostPort
from tierd.remote.view import Claim, ClaimState, RemotePartition, RemoteStatus
from tierd.storage.batch import encode_batch, walk
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.header import parse_header
from tierd.storage.log import Log
from tierd.storage.records import Record, iter_records
from tierd.storage.view import EMPTY_SLICE, FileSpan, LogSlice, PartitionView, Seed, TimestampOffset
from tierd.wire.control import _element, _zero
from tierd.wire.schema import Shape, shapes

_T = TypeVar("_T")
T0 = 1_700_000_000_000


def settings(root: Path, *, remote: bool = False, **overrides: Any) -> Settings:
    return Settings(
        data_dirs=overrides.pop("data_dirs", (root / "data",)),
        state_dir=root / "state",
        listener=Listener(address=HostPort("127.0.0.1", 0)),
        remote=Remote(url=f"file:{root / 'bucket'}") if remote else Remote(),
        **overrides,
    )


@dataclass
class FileTier:
    """A RemoteTier whose bucket is whatever `hold` was shown; reads can be delayed or refused."""

    path: Path
    claim: Claim = field(default_factory=lambda: Claim(state=ClaimState.HELD, epoch=1))
    partitions: dict[PartitionId, list[tuple[int, int, int, int, bytes]]] = field(default_factory=dict)
    views: list[PartitionView] = field(default_factory=list)
    topics: list[tuple[str, Uuid]] = field(default_factory=list)
    deleted: list[tuple[str, Uuid]] = field(default_factory=list)
    heads: list[PartitionId] = field(default_factory=list)
    gate: asyncio.Event | None = None
    fails: type[Exception] | None = None
    reads: int = 0
    out: int = 0

    def hold(self, log: Log, stop: int) -> RemotePartition:
        """Copy every batch below *stop*."""
        part = PartitionId(log.topic_id, log.name.partition)
        rows = self.partitions.setdefault(part, [])
        have = rows[-1][1] if rows else log.local_start
        with self.path.open("ab") as file:
            for header, raw in log.batches(have, stop):
                rows.append((header.base_offset, header.next_offset, file.tell(), len(raw), raw))
                file.write(raw)
        return self.remote(part)

    def remote(self, part: PartitionId) -> RemotePartition:
        rows = self.partitions[part]
        return RemotePartition(
            id=part,
            start=rows[0][0],
            copied_to=rows[-1][1],
            log_start=None,
            size_bytes=sum(row[3] for row in rows),
            leader_epoch=1,
        )

    def remote_partition(self, part: PartitionId) -> RemotePartition | None:
        return self.remote(part) if part in self.partitions else None

    async def read(self, part: PartitionId, offset: int, *, max_bytes: int, stop: int, committed: bool) -> LogSlice:
        self.reads += 1
        if self.gate is not None:
            await self.gate.wait()
        if self.fails is not None:
            raise self.fails("the bucket is away")
        spans: list[FileSpan] = []
        length, end = 0, offset
        fd = os.open(self.path, os.O_RDONLY)
        for base, next_base, position, size, _ in self.partitions.get(part, []):
            if next_base <= offset or base >= stop:
                continue
            if spans and length + size > max_bytes:
                break
            spans.append(FileSpan(fd, position, size))
            length, end = length + size, next_base
        if not spans:
            os.close(fd)
            return EMPTY_SLICE
        self.out += 1
        return LogSlice(tuple(spans), length, (), end, lambda: self._back(fd))

    def _back(self, fd: int) -> None:
        os.close(fd)
        self.out -= 1

    def _records(self, part: PartitionId, start: int, stop: int) -> Iterator[Record]:
        for base, _, _, _, raw in self.partitions.get(part, []):
            if base < stop:
                view = memoryview(raw)
                yield from (
                    record for record in iter_records(view, parse_header(view)) if start <= record.offset < stop
                )

    async def by_time(self, part: PartitionId, timestamp_ms: int, *, start: int, stop: int) -> TimestampOffset | None:
        for record in self._records(part, start, stop):
            if record.timestamp_ms >= timestamp_ms:
                return TimestampOffset(record.offset, record.timestamp_ms, 1)
        return None

    async def largest_timestamp(self, part: PartitionId, *, start: int, stop: int) -> TimestampOffset | None:
        if self.fails is not None:
            raise self.fails("the bucket is away")
        best = max(self._records(part, start, stop), key=lambda record: record.timestamp_ms, default=None)
        return None if best is None else TimestampOffset(best.offset, best.timestamp_ms, 1)

    async def seed(self, part: PartitionId) -> Seed:
        raise RemoteUnavailable("no seed here")

    async def publish_head(self, part: PartitionId) -> None:
        if self.fails is not None:
            raise self.fails("the bucket is away")
        self.heads.append(part)

    def partition_changed(self, view: PartitionView) -> None:
        self.views.append(view)

    def topic_changed(
        self, topic: str, topic_id: Uuid, partitions: int, config: dict[str, str], created_ms: int
    ) -> None:
        self.topics.append((topic, topic_id))

    def topic_deleted(self, topic: str, topic_id: Uuid, partitions: int, deleted_ms: int) -> None:
        self.deleted.append((topic, topic_id))

    async def status(self) -> dict[PartitionId, RemoteStatus]:
        if self.fails is not None:
            raise self.fails("the bucket is away")
        return {
            part: RemoteStatus(remote=self.remote(part), oldest_uncopied_ms=None, waiting=None)
            for part in self.partitions
        }


class Running:
    """The broker and its parts; `on_loop` runs something on its loop and waits for it."""

    def __init__(self, config: Settings, tier: RemoteTier | None, clock: Clock) -> None:
        self.config = config
        self.tier = tier
        self.clock = clock
        self.disk: Disk = PosixDisk()
        self.unusable: list[Home] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="broker", daemon=True)
        self.problems: list[dict[str, Any]] = []
        self._loop.set_exception_handler(lambda loop, context: self.problems.append(context))

    def start(self) -> None:
        self._thread.start()
        self.run(self._start())

    async def _start(self) -> None:
        self.config.state_dir.mkdir(parents=True, exist_ok=True)
        self.registry = Registry.open(self.config.state_dir / "registry.sqlite")
        defaults = self.config.topic_defaults
        self.directories = [
            LogDirectory.open(
                path,
                self.disk,
                self.clock,
                settings_for=settings_for(self.registry, defaults),
                topic_id_for=topic_id_for(self.registry),
                node_id=self.config.node_id,
                cluster_id=None,
                set_aside=self.config.state_dir / "set-aside",
                reserve_bytes=0,
            )
            for path in self.config.data_dirs
            if path.absolute() not in [home.path for home in self.unusable]
        ]
        self.partitions = Partitions(self.registry, self.directories, defaults, self.clock, unusable=self.unusable)
        self.partitions.load()
        self.local = LocalLog(self.partitions, self.clock)
        self.local.tier = self.tier
        epoch = 1 + max((p.log.leader_epoch for p in self.partitions), default=-1)
        remotes = {p.id: r for p in self.partitions if self.tier and (r := self.tier.remote_partition(p.id))}
        await self.partitions.begin(epoch, remotes, self.tier)
        self.broker = Broker(
            self.config,
            self.registry,
            self.partitions,
            self.tier,
            self.clock,
            cluster_id=self.directories[0].cluster_id,
        )
        self.address = await self.broker.start()

    def stop(self, *, clean: bool = True) -> None:
        self.run(self.broker.stop())
        for directory in self.directories:
            self.call(lambda directory=directory: directory.close(clean))  # type: ignore[misc]
        self.registry.close()
        self.end()
        assert not self.problems, self.problems

    def end(self) -> None:
        """End the loop and its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, awaitable: Awaitable[_T]) -> _T:
        async def waited() -> _T:
            return await awaitable

        return asyncio.run_coroutine_threadsafe(waited(), self._loop).result(60)

    def call(self, work: Callable[[], _T]) -> _T:
        async def called() -> _T:
            return work()

        return self.run(called())

    def log(self, topic: str, partition: int = 0) -> Log:
        found = self.partitions.get(topic, partition)
        assert found is not None
        return found.log

    def give_to_tier(self, topic: str, stop: int, partition: int = 0) -> None:
        """Hold the segments below *stop* in the bucket and drop them from the disk."""
        assert isinstance(self.tier, FileTier)
        tier = self.tier
        found = self.partitions.get(topic, partition)
        assert found is not None
        remote = self.call(lambda: tier.hold(found.log, stop))
        self.call(lambda: self.local.remote_changed(remote))
        self.run(self.broker.housekeeping.flush([found]))
        assert self.run(self.local.evict(found.id, stop)) == stop


@contextmanager
def running(
    root: Path, tier: FileTier | None = None, *, clock: Clock | None = None, **overrides: Any
) -> Iterator[Running]:
    broker = Running(settings(root, remote=tier is not None, **overrides), tier, clock or SystemClock())
    broker.start()
    try:
        yield broker
    finally:
        broker.stop()


class Client:
    """One blocking connection; requests from plain values, answers as kio entities."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._sock = socket.create_connection(address)
        self._sock.settimeout(20)
        self._number = 0

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._sock.close()

    def call(self, key: int, version: int, /, **fields: Any) -> Any:
        self.send(key, version, **fields)
        return self.answer(key, version)

    def send(self, key: int, version: int, /, **fields: Any) -> None:
        self._number += 1
        self._sock.sendall(request_frame(key, version, self._number, **fields))

    def send_raw(self, raw: bytes) -> None:
        self._sock.sendall(raw)

    def answer(self, key: int, version: int) -> Any:
        raw = self.frame()
        schema = load_response_schema(key, version)
        header, size = entity_reader(schema.__header_schema__)(raw, 0)
        assert header.correlation_id == self._number
        entity, _ = entity_reader(schema)(raw, size)
        return entity

    def frame(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(4), "big"))

    def closed(self) -> bool:
        """Whether the other side has closed without another byte."""
        try:
            return self._sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self._sock.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    # The usual requests.

    def create(self, topic: str, partitions: int = 1, **config: str) -> Any:
        configs = [{"name": name.replace("_", "."), "value": value} for name, value in config.items()]
        asked = {
            "name": topic,
            "num_partitions": partitions,
            "replication_factor": 1,
            "assignments": (),
            "configs": configs,
        }
        return self.call(19, 7, topics=[asked], timeout=5000, validate_only=False).topics[0]

    def produce(self, topic: str, records: bytes | None, partition: int = 0, *, version: int = 9, **fields: Any) -> Any:
        data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
        asked = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": data, **fields}
        return self.call(0, version, **asked).responses[0].partition_responses[0]

    def fetch(self, topic: str, offset: int, partition: int = 0, *, version: int = 12, **fields: Any) -> Any:
        return self.fetch_many(
            [(topic, partition, offset, fields.pop("partition_max_bytes", 1 << 20))], version, **fields
        )[0]

    def fetch_many(self, wanted: list[tuple[str, int, int, int]], version: int = 12, **fields: Any) -> list[Any]:
        self.send_fetch(wanted, version, **fields)
        return self.fetched(version)

    def send_fetch(self, wanted: list[tuple[str, int, int, int]], version: int = 12, **fields: Any) -> None:
        topics = [
            {
                "topic": topic,
                "partitions": [
                    {
                        "partition": partition,
                        "fetch_offset": offset,
                        "partition_max_bytes": most,
                        "current_leader_epoch": -1,
                    }
                ],
            }
            for topic, partition, offset, most in wanted
        ]
        limits = {"max_wait": 0, "min_bytes": 1, "max_bytes": 1 << 26, "isolation_level": 0, **fields}
        self.send(1, version, replica_id=-1, session_epoch=-1, topics=topics, **limits)

    def fetched(self, version: int = 12) -> list[Any]:
        return [partition for topic in self.answer(1, version).responses for partition in topic.partitions]

    def list_offsets(self, topic: str, timestamp: int, *, version: int = 8, **fields: Any) -> Any:
        asked = [{"partition_index": 0, "timestamp": timestamp, "current_leader_epoch": -1}]
        topics = [{"name": topic, "partitions": asked}]
        return self.call(2, version, replica_id=-1, topics=topics, **fields).topics[0].partitions[0]


def request_frame(key: int, version: int, number: int, /, **fields: Any) -> bytes:
    schema = load_request_schema(key, version)
    entity = build(schema, fields)
    header_schema = schema.__header_schema__
    header = build(
        header_schema,
        {"request_api_key": key, "request_api_version": version, "correlation_id": number, "client_id": "test"},
    )
    out = BytesIO()
    entity_writer(header_schema)(out, header)
    entity_writer(schema)(out, entity)
    raw = out.getvalue()
    return len(raw).to_bytes(4, "big") + raw


def build(schema: Any, fields: dict[str, Any]) -> Any:
    """As `make_response`, for requests; fields that this version lacks are left out."""
    values = {}
    for shape in shapes(schema):
        if shape.name in fields:
            values[shape.name] = _filled(shape, fields[shape.name])
        else:
            values[shape.name] = _zero(shape) if shape.default is dataclasses.MISSING else shape.default
    return schema(**values)


def _filled(shape: Shape, value: Any) -> Any:
    def one(item: Any) -> Any:
        return (
            build(shape.entity, item) if shape.entity is not None and isinstance(item, dict) else _element(shape, item)
        )

    return tuple(map(one, value)) if shape.array and value is not None else one(value)


def batch(count: int = 3, *, t0: int = T0, step: int = 1, size: int = 20, **fields: Any) -> bytes:
    records = [Record(n, t0 + n * step, b"k%d" % n, b"v" * size) for n in range(count)]
    return bytes(encode_batch(records, **fields))


def offsets_of(records: bytes | None) -> list[int]:
    """Offsets of all records in what a fetch returned."""
    raw = memoryview(records or b"")
    return [
        record.offset for at, header in walk(raw) for record in iter_records(raw[at : at + header.size_bytes], header)
    ]
