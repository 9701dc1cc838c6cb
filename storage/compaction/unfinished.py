"""What an interrupted swap of cleaned segments left in a partition directory: undone or finished before it is read.

While a base has a `.cleaned` file its swap had only begun (swap.py renames the log last, Kafka first): what has a
`.swap` name is removed, the old files are whole. Without one every `.swap` file is good and takes its place.
"""

from collections.abc import Iterable
from pathlib import Path

from tierd.base.disk import Disk
from tierd.storage.log_read import heads
from tierd.storage.names import Mark, SegmentFile, Suffix, segment_file

_LOG_LAST = (Suffix.TXN_INDEX, Suffix.TIME_INDEX, Suffix.INDEX, Suffix.LOG)


def settle_swaps(
    directory: Path,
    disk: Disk,
    present: dict[Suffix, set[int]],
    cleaned: Iterable[SegmentFile],
    swaps: Iterable[SegmentFile],
) -> None:
    """*present*, the offsets of the files under final names, is brought up to date.

    Raises CorruptFile when a segment to swap in is broken, OSError.
    """
    begun = {file.offset for file in cleaned}
    ready: dict[int, set[Suffix]] = {}
    for file in swaps:
        if file.offset in begun:
            disk.unlink(directory / segment_file(file.offset, file.suffix, Mark.SWAP))
        else:
            ready.setdefault(file.offset, set()).add(file.suffix)
    for file in cleaned:
        disk.unlink(directory / segment_file(file.offset, file.suffix, Mark.CLEANED))
    for base in sorted(ready):
        if Suffix.LOG in ready[base]:
            _remove_old(directory, disk, present, base)
        for suffix in _LOG_LAST:
            if suffix in ready[base]:
                disk.replace(directory / segment_file(base, suffix, Mark.SWAP), directory / segment_file(base, suffix))
                present[suffix].add(base)


def _remove_old(directory: Path, disk: Disk, present: dict[Suffix, set[int]], base: int) -> None:
    """The segments that the one to come was made of. Without an old log at *base* the indexes there are new already."""
    stop = end_of(directory / segment_file(base, Suffix.LOG, Mark.SWAP), base)
    for old in sorted(old for old in present[Suffix.LOG] if base <= old < stop):
        for suffix in _LOG_LAST:
            if old in present[suffix]:
                disk.unlink(directory / segment_file(old, suffix))
                present[suffix].discard(old)


def end_of(path: Path, base: int) -> int:
    """The offset after the last batch of a log."""
    end = base + 1
    with path.open("rb") as file:
        for _, _, last, _ in heads(file.fileno(), 0, path.stat().st_size, str(path)):
            end = last + 1
    return end
