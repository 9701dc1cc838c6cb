"""What one partition of `__consumer_offsets` says, read from its first batch to its last. Pure; runs in a thread."""

from dataclasses import dataclass, field

from tierd.broker.groups.codec import Commit, CommitKey, decode_commit, decode_group, decode_key
from tierd.broker.groups.consumer.records import ConsumerReplay
from tierd.broker.groups.model import StoredGroup
from tierd.broker.groups.pending import PendingOffsets, holds
from tierd.storage.batch import BatchHeader, ControlType, parse_control, walk
from tierd.storage.records import Record, iter_records


@dataclass(slots=True)
class Replay:
    """Feed whole batches in order; then `groups` and `commits` are what holds."""

    where: str
    groups: dict[str, StoredGroup] = field(default_factory=dict)
    commits: dict[CommitKey, Commit] = field(default_factory=dict)
    consumers: ConsumerReplay = field(default_factory=ConsumerReplay)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    """What open transactions are about to commit."""

    def feed(self, chunk: bytes | memoryview) -> None:
        """Raises CorruptFile."""
        view = memoryview(chunk)
        for position, header in walk(view, self.where):
            records = iter_records(view[position : position + header.size_bytes], header, self.where)
            for record in records:
                self._take(header, record)

    def _take(self, header: BatchHeader, record: Record) -> None:
        if header.control:
            decided = self.pending.take(header.producer_id)
            if parse_control(record)[0] == ControlType.COMMIT:
                held = {key: commit for key, commit in decided.items() if holds(self.commits.get(key), commit)}
                self.commits.update(held)
            return
        if record.key is None:
            return
        key = decode_key(record.key, self.where)
        if key is None:
            self.consumers.take(record.key, record.value, self.where)
        if isinstance(key, CommitKey):
            self._take_commit(header, record, key)
        elif key is not None:
            if record.value is None:
                self.groups.pop(key, None)
            else:
                self.groups[key] = decode_group(record.value, self.where)

    def _take_commit(self, header: BatchHeader, record: Record, key: CommitKey) -> None:
        if record.value is None:
            self.commits.pop(key, None)
            self.pending.drop(key)
            return
        commit = decode_commit(record.value, self.where, record.offset)
        if header.transactional:
            self.pending.put(header.producer_id, [(key, commit)])
        else:
            self.commits[key] = commit
