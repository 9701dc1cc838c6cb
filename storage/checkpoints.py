"""The checkpoints of a data directory (storage/FORMAT.md, "Checkpoints"): one offset per partition.

Recovery points, high watermarks, log starts and the cleaner's progress all have this form; `names.py` has
their names.
"""

from collections.abc import Mapping

from tierd.base.errors import CorruptFile
from tierd.base.ids import TopicPartition
from tierd.storage.textfile import encode_rows, number, parse_rows


def parse_checkpoint(raw: bytes, where: str = "") -> dict[TopicPartition, int]:
    """Offset by partition, in file order. Raises CorruptFile, also for a partition named twice."""
    found: dict[TopicPartition, int] = {}
    for at, (topic, partition, offset) in parse_rows(raw, 3, where):
        tp = TopicPartition(topic, number(partition, at, where))
        if tp in found:
            raise CorruptFile(where, at, f"{tp} is there twice")
        found[tp] = number(offset, at, where)
    return found


def encode_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    return encode_rows(f"{tp.topic} {tp.partition} {offset}" for tp, offset in offsets.items())
