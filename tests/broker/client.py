"""A plain blocking client; what it sends and gets are kio's entities."""

import dataclasses
import select
import socket
from contextlib import suppress
from io import BytesIO
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from tierd.storage.batch import encode_batch, walk
from tierd.storage.records import Record, iter_records
from tierd.wire.control import _element, _zero
from tierd.wire.schema import Shape, shapes

T0 = 1_700_000_000_000


class Client:
    """One blocking connection; requests from plain values, answers as kio entities."""

    def __init__(self, address: tuple[str, int], host: str = "") -> None:
        """*host*: the address that it comes from, of those that this machine has."""
        self._sock = socket.create_connection(address, source_address=(host, 0))
        self._sock.settimeout(60)
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

    def has_answer(self) -> bool:
        """Whether an answer has begun to come."""
        look = select.poll()  # select itself knows descriptors below 1024 only, and tests before this may hold more
        look.register(self._sock, select.POLLIN)
        return bool(look.poll(0))

    def closed(self) -> bool:
        """Whether the other side has closed without another byte."""
        try:
            return self._sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def hear_all(self) -> bytes:
        """Say no more, and listen until the other side has closed."""
        self._sock.shutdown(socket.SHUT_WR)
        heard = b""
        with suppress(ConnectionResetError):
            while more := self._sock.recv(65536):
                heard += more
        return heard

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
