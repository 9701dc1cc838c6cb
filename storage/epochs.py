"""The file `leader-epoch-checkpoint` (storage/FORMAT.md, "Leader epochs"): which epoch begins at which offset."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tierd.base.errors import CorruptFile
from tierd.storage.textfile import encode_rows, number, parse_rows


@dataclass(frozen=True, slots=True, order=True)
class EpochEntry:
    epoch: int
    start_offset: int


def parse_epochs(raw: bytes, where: str = "") -> list[EpochEntry]:
    """Epochs strictly ascending, start offsets not descending. Raises CorruptFile."""
    entries = [
        EpochEntry(number(epoch, at, where), number(start, at, where))
        for at, (epoch, start) in parse_rows(raw, 2, where)
    ]
    for before, after in pairwise(entries):
        if after.epoch <= before.epoch or after.start_offset < before.start_offset:
            raise CorruptFile(where, 0, f"epoch {after.epoch} at {after.start_offset} after {before}")
    return entries


def encode_epochs(entries: Iterable[EpochEntry]) -> bytes:
    return encode_rows(f"{entry.epoch} {entry.start_offset}" for entry in entries)
