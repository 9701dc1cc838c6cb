"""Cost of one call of the hand-written codecs, beside kio's: `python -m bench.wire_codec`."""

import datetime
import importlib
import io
import timeit
from collections.abc import Callable
from typing import Any

from kio.index import load_request_schema
from kio.serial import entity_reader, entity_writer

from tierd.wire.fetch import PartitionFetched, decode_fetch, encode_fetch_response
from tierd.wire.frame import FrameBuffer
from tierd.wire.header import parse_request_header
from tierd.wire.produce import PartitionProduced, decode_produce, encode_produce_response

_ROUNDS = 5
_FRAME = (100).to_bytes(4, "big") + bytes(100)


def main() -> None:
    for name, call in _calls():
        timer = timeit.Timer(call)
        count, took_s = timer.autorange()
        best_s = min(took_s, *timer.repeat(_ROUNDS, count)) / count
        print(f"{name:44} {best_s * 1e6:8.2f} us")


def _calls() -> list[tuple[str, Callable[[], object]]]:
    big, many = _produce(1, 1 << 20), _produce(20, 4096)
    one, fifty = _fetch(1), _fetch(50)
    kio_one, kio_fifty, kio_reader = bytes(one), bytes(fifty), entity_reader(load_request_schema(1, 12))
    header = memoryview(bytes.fromhex("0001 000c 00000007 0007") + b"rdkafka\0")
    buffer = FrameBuffer(1 << 20)

    def frame() -> None:
        buffer.space()[: len(_FRAME)] = _FRAME
        buffer.received(len(_FRAME))
        buffer.next_frame()

    def produced(partitions: int) -> Callable[[], object]:
        answer = [("topic", [PartitionProduced(index, 0, 5, None, 0) for index in range(partitions)])]
        return lambda: encode_produce_response(1, 9, answer)

    def fetched(partitions: int) -> Callable[[], object]:
        answer = [("topic", [PartitionFetched(index, 0, 5, 5, 0, None, 1 << 16) for index in range(partitions)])]
        return lambda: encode_fetch_response(1, 12, answer)

    return [
        ("frame of 100 B", frame),
        ("request header", lambda: parse_request_header(header)),
        ("decode Produce v9, 1 partition of 1 MiB", lambda: decode_produce(big, 0, 9)),
        ("decode Produce v9, 20 partitions of 4 KiB", lambda: decode_produce(many, 0, 9)),
        ("encode Produce v9, 1 partition", produced(1)),
        ("encode Produce v9, 20 partitions", produced(20)),
        ("decode Fetch v12, 1 partition", lambda: decode_fetch(one, 0, 12)),
        ("  the same by kio", lambda: kio_reader(kio_one, 0)),
        ("decode Fetch v12, 50 partitions", lambda: decode_fetch(fifty, 0, 12)),
        ("  the same by kio", lambda: kio_reader(kio_fifty, 0)),
        ("encode Fetch v12, 1 partition", fetched(1)),
        ("encode Fetch v12, 50 partitions", fetched(50)),
    ]


def _produce(partitions: int, size: int) -> memoryview:
    schema: Any = load_request_schema(0, 9)
    module = importlib.import_module(schema.__module__)
    parts = tuple(module.PartitionProduceData(index=index, records=bytes(size)) for index in range(partitions))
    topics = (module.TopicProduceData(name="topic", partition_data=parts),)
    return _encoded(schema(transactional_id=None, acks=-1, timeout=datetime.timedelta(0), topic_data=topics))


def _fetch(partitions: int) -> memoryview:
    schema: Any = load_request_schema(1, 12)
    module = importlib.import_module(schema.__module__)
    parts = tuple(
        module.FetchPartition(partition=index, fetch_offset=3, partition_max_bytes=1 << 20)
        for index in range(partitions)
    )
    topics = (module.FetchTopic(topic="topic", partitions=parts),)
    wait = datetime.timedelta(milliseconds=500)
    return _encoded(schema(replica_id=-1, max_wait=wait, min_bytes=1, topics=topics, forgotten_topics_data=()))


def _encoded(request: Any) -> memoryview:
    out = io.BytesIO()
    entity_writer(type(request))(out, request)
    return memoryview(bytearray(out.getvalue()))


if __name__ == "__main__":
    main()
