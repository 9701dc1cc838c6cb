"""The log of a partition that lies in the bucket alone: it has no file, takes no append, ends where the copies do."""

from collections.abc import Iterable
from pathlib import Path

from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.aborted import AbortedEntries
from tierd.storage.context import LogContext
from tierd.storage.epochs import EpochEntry
from tierd.storage.indexing import IndexBuilder
from tierd.storage.lineage import Lineage
from tierd.storage.loader import LoadedLog
from tierd.storage.log import Log
from tierd.storage.names import partition_directory
from tierd.storage.producers import Producers
from tierd.storage.segment import Segment
from tierd.storage.segments import Segments
from tierd.storage.snapshots import Snapshots

READ_ONLY = "this is an archive: it is only read"


def remote_only(
    context: LogContext,
    home: Path,
    name: TopicPartition,
    topic_id: Uuid,
    settings: TopicSettings,
    *,
    log_start: int,
    local_start: int,
    log_end: int,
    epochs: Iterable[EpochEntry],
) -> Log:
    """A log over offsets [log_start, log_end) of which the bucket has those below *local_start*; the others nobody has.

    *home* is the data directory of *context*; nothing of the log is ever made there. Loop thread only.
    """
    directory = home / partition_directory(name)
    empty = Segment(directory, local_start, context.fds)
    empty.builder, empty.aborted, empty.checked = IndexBuilder(local_start), AbortedEntries(), True
    loaded = LoadedLog(
        Segments([empty]),
        Producers(),
        Lineage(directory, context.disk, list(epochs)),
        Snapshots(directory, context.disk, ()),
        log_start,
        log_end,
        log_end,
        context.set_aside.txn_listed(name, topic_id),
    )
    made = Log(context, name, topic_id, directory, settings, loaded)
    made.read_only = READ_ONLY
    made.high_watermark = made.last_stable = log_end  # no transaction that is open is ever copied
    return made
