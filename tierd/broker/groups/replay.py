"""What one partition of `__consumer_offsets` says, read from its first batch to its last. Pure; runs in a thread."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tierd.base.errors import CorruptFile
from tierd.broker.damage import DamagedRecords, sound_records
from tierd.broker.groups.codec import Commit, CommitKey, decode_commit, decode_group, decode_key, group_of
from tierd.broker.groups.consumer.records import ConsumerReplay
from tierd.broker.groups.model import StoredGroup
from tierd.broker.groups.pending import PendingOffsets, holds
from tierd.storage.batch import BatchHeader, ControlType, parse_control
from tierd.storage.records import Record


@dataclass(slots=True)
class GroupReplay:
    """Feed whole batches in order; then `groups` and `commits` are what holds."""

    where: str
    groups: dict[str, StoredGroup] = field(default_factory=dict)
    commits: dict[CommitKey, Commit] = field(default_factory=dict)
    consumers: ConsumerReplay = field(default_factory=ConsumerReplay)
    pending: PendingOffsets = field(default_factory=PendingOffsets)
    """What open transactions are about to commit."""
    _damaged: dict[bytes, tuple[str | None, str]] = field(default_factory=dict)
    """By key, those whose last record cannot be decoded: the group that the key names, and why."""

    def without_damaged(self) -> dict[str, str]:
        """Drop the groups of which nobody knows all that holds; give them, and why."""
        damaged = {group: why for group, why in self._damaged.values() if group is not None}
        for group in damaged:
            self.groups.pop(group, None)
            self.consumers.groups.pop(group, None)
        if damaged:
            self.commits = {key: commit for key, commit in self.commits.items() if key.group not in damaged}
        return damaged

    @property
    def wrong(self) -> Iterator[str]:
        """What could not be decoded, a line each."""
        for group, why in self._damaged.values():
            then = "the record is passed over" if group is None else f"group {group!r} is not served, the others are"
            yield f"{why}; {then}"

    def feed(self, chunk: bytes | memoryview) -> None:
        """Raises DamagedRecords."""
        for header, record in sound_records(chunk, self.where):
            if header.control:
                self._end(header, record)
            elif record.key is not None:
                self._take(header, record, bytes(record.key))

    def _end(self, header: BatchHeader, record: Record) -> None:
        try:
            kind = parse_control(record)[0]
        except CorruptFile as error:
            raise DamagedRecords(self.where, record.offset, error.reason) from error
        decided = self.pending.take(header.producer_id)
        if kind == ControlType.COMMIT:
            held = {key: commit for key, commit in decided.items() if holds(self.commits.get(key), commit)}
            self.commits.update(held)

    def _take(self, header: BatchHeader, record: Record, raw_key: bytes) -> None:
        self._damaged.pop(raw_key, None)
        try:
            self._decode(header, record, raw_key)
        except CorruptFile as error:
            self._damaged[raw_key] = (group_of(raw_key), f"offset {record.offset}: {error.reason}")

    def _decode(self, header: BatchHeader, record: Record, raw_key: bytes) -> None:
        key = decode_key(raw_key, self.where)
        if key is None:
            self.consumers.take(raw_key, record.value, self.where)
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
