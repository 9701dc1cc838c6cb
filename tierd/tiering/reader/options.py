"""The limits of remote reads; `config` has the settings behind those that a user may choose."""

from dataclasses import dataclass

from tierd.config.topic import MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderOptions:
    first_bytes: int = MIB // 4
    """Of the first range of a reader that may never come back: small, so that the first byte comes early."""
    stretch_bytes: int = 2 * MIB
    """A range goes on so far to where a batch is known to end, or a small segment: else it takes another request."""
    range_bytes: int = 16 * MIB
    """Of the ranges of a fast sequential reader, give or take a third; others get less, down to a quarter."""
    read_ahead: int = 8
    """How many such ranges are fetched before they are asked for, at most."""
    cache_bytes: int = 4096 * MIB
    """Disk for extents and indexes. Twice what all sequential readers read ahead, or they read ahead less."""
    memory_bytes: int = 64 * MIB
    """For ranges in flight, all readers together."""
    threads: int = 10
    """Requests at once; one is kept for readers who wait."""
    index_bytes: int = 32 * MIB
    """For offset, time and transaction indexes in memory."""
    table_bytes: int = 16 * MIB
    """For knowing where batches lie in cached extents: 20 bytes a batch."""
    whole_indexes_bytes: int = MIB // 4
    """A `.indexes` up to this size is fetched with one request."""
    open_files: int = 512
    """Descriptors out at a time; further reads wait."""
    spans: int = 16
    """Files in one answer."""
    streams: int = 4096
    """Readers remembered between two reads."""
    pass_gaps: bool = False
    """Go on behind offsets that no segment has; else they are an error, for something must have them."""
