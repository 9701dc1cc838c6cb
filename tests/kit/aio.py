"""aiokafka as a blocking client."""

import asyncio
from collections.abc import Coroutine, Iterable

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from kit.traffic import Message

PATIENCE_S = 60


def produce(address: str, topic: str, messages: Iterable[Message]) -> None:
    """Idempotent, acks=all, partition 0; raises when any record was not acknowledged."""

    async def send() -> None:
        async with AIOKafkaProducer(bootstrap_servers=address, acks="all", enable_idempotence=True) as producer:
            sent = [
                await producer.send(topic, m.value, m.key, partition=0, timestamp_ms=m.timestamp_ms) for m in messages
            ]
            await asyncio.gather(*sent)

    _run(send())


def consume(address: str, topic: str, start: int, stop: int) -> list[Message]:
    """Offsets [start, stop) of partition 0 by assign and seek."""
    got: list[Message] = []

    async def read() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=address, enable_auto_commit=False) as consumer:
            part = TopicPartition(topic, 0)
            consumer.assign([part])
            consumer.seek(part, start)
            await _take(consumer, got, stop - start)

    _run(read())
    return got


def group(address: str, topic: str, group: str, count: int) -> list[Message]:
    """*count* records by subscribing; offsets are committed at the end."""
    got: list[Message] = []
    options = {"enable_auto_commit": False, "auto_offset_reset": "earliest"}

    async def read() -> None:
        async with AIOKafkaConsumer(topic, bootstrap_servers=address, group_id=group, **options) as consumer:
            await _take(consumer, got, count)
            await consumer.commit()

    _run(read())
    return got


def offset_at(address: str, topic: str, timestamp_ms: int) -> int:
    found: list[int] = []

    async def ask() -> None:
        async with AIOKafkaConsumer(bootstrap_servers=address) as consumer:
            part = TopicPartition(topic, 0)
            found.append((await consumer.offsets_for_times({part: timestamp_ms}))[part].offset)

    _run(ask())
    return found[0]


async def _take(consumer: AIOKafkaConsumer, got: list[Message], count: int) -> None:
    while len(got) < count:
        r = await consumer.getone()
        got.append(Message(r.offset, r.key, r.value, r.timestamp))


def _run(work: Coroutine[None, None, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work

    asyncio.run(bounded())
