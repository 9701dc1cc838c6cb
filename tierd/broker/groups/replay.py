"""What one partition of `__consumer_offsets` says, read from its first batch to its last. Pure; runs in a thread."""

from dataclasses import dataclass, field

from tierd.broker.groups.codec import Commit, CommitKey, decode_commit, decode_group, decode_key
from tierd.broker.groups.model import StoredGroup
from tierd.storage.batch import BatchHeader, ControlType, parse_control, walk
from tierd.storage.records import Record, iter_records


@dataclass(slots=True)
class Replay:
    """Feed whole batches in order; then `groups` and `commits` are what holds."""

    where: str
    groups: dict[str, StoredGroup] = field(default_factory=dict)
    commits: dict[CommitKey, Commit] = field(default_factory=dict)
    _open: dict[int, list[tuple[CommitKey, Commit | None]]] = field(default_factory=dict)
    """Offsets committed inside transactions that have no marker yet, by producer id: not visible."""

    def feed(self, chunk: bytes | memoryview) -> None:
        """Raises CorruptFile."""
        view = memoryview(chunk)
        for position, header in walk(view, self.where):
            records = iter_records(view[position : position + header.size_bytes], header, self.where)
            for record in records:
                self._take(header, record)

    def _take(self, header: BatchHeader, record: Record) -> None:
        if header.control:
            decided = self._open.pop(header.producer_id, [])
            if parse_control(record)[0] == ControlType.COMMIT:
                for committed in decided:
                    self._set(*committed)
            return
        if record.key is None:
            return
        key = decode_key(record.key, self.where)
        if isinstance(key, CommitKey):
            commit = None if record.value is None else decode_commit(record.value, self.where)
            if header.transactional:
                self._open.setdefault(header.producer_id, []).append((key, commit))
            else:
                self._set(key, commit)
        elif key is not None:
            if record.value is None:
                self.groups.pop(key, None)
            else:
                self.groups[key] = decode_group(record.value, self.where)

    def _set(self, key: CommitKey, commit: Commit | None) -> None:
        if commit is None:
            self.commits.pop(key, None)
        else:
            self.commits[key] = commit
