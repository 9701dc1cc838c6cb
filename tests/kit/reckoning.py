"""The reckoning after kills: what clients were promised is there, once and in order, and nothing is there that is not
owned."""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kit import bucket, traffic
from kit.bucket import Remotely
from kit.daemon import Daemon
from kit.streams import Ledger
from tierd.base.exits import Exit

QUIET_S = 60.0
"""So long what is left of a cut deed may stay: its retry, and the delay after which a request cannot land any more."""


@dataclass(frozen=True, slots=True)
class Reckoning:
    daemon: Daemon
    remotely: Remotely

    @property
    def state(self) -> Path:
        return self.daemon.data.with_name(self.daemon.data.name + ".tierd")

    def all_is_there(self, ledgers: Iterable[Ledger], *, kept_bytes: Mapping[str, int]) -> None:
        """Every acknowledged record, read back from the bucket; topics in *kept_bytes* may have lost their oldest."""
        self._to_the_bucket()
        for ledger in ledgers:
            self.log(ledger, kept_bytes.get(ledger.topic))

    def _to_the_bucket(self) -> None:
        for _ in range(int(QUIET_S)):  # the last kill may have been the tierer's, which is started again
            if self.daemon.verb("copy", "--wait", "--roll", expect=None).returncode != Exit.BUCKET_SILENT:
                break
            threading.Event().wait(1)
        self.daemon.verb("copy", "--wait")
        self.daemon.verb("evict")

    def log(self, ledger: Ledger, kept_bytes: int | None = None) -> None:
        """Each record once, in order, where its producer was told that it is; in the bucket without gap or double."""
        topic, row = ledger.topic, self.daemon.partition(ledger.topic)
        start, end = row["log_start"], row["log_end"]
        got = traffic.consume_confluent(self.daemon.address, topic, start, end)
        numbers = [int(m.key.rsplit(b"-", 1)[1]) for m in got]
        assert [m.offset for m in got] == list(range(start, end)), f"{topic}: offsets are not contiguous"
        assert len(set(numbers)) == len(numbers), f"{topic}: a record is there twice"
        assert numbers == sorted(numbers), f"{topic}: records changed their order"
        if kept_bytes is None:
            assert (start, numbers[0]) == (0, 0), f"{topic} begins at {start} with record {numbers[0]}"
        elif start:
            kept = sum(len(m.value) for m in got)
            assert kept > kept_bytes * 0.9, f"{topic}: retention left {kept} bytes"  # headers count, too
        by_number = dict(zip(numbers, got, strict=True))
        for number, offset in ledger.acknowledged.items():
            if offset < start:
                continue
            assert number in by_number, f"{topic}: record {number}, acknowledged at {offset}, is lost"
            assert by_number[number].offset == offset, f"{topic}: record {number} was acknowledged at {offset}"
            assert by_number[number].value == ledger.message(number).value, f"{topic}: record {number} is another"
        self._ranges(topic, start)

    def _ranges(self, topic: str, start: int) -> None:
        covered = start
        for base, next_base in bucket.ranges(self.state, topic):
            if next_base <= start:
                continue  # released, on its way out
            assert base <= covered, f"{topic}: the bucket has nothing of [{covered}, {base})"
            assert base == covered or base < start, f"{topic}: [{base}, {next_base}) is there twice"
            covered = next_base

    def nothing_else_is_there(self, deleted: str) -> None:
        """Of topics whose names begin with *deleted* nothing is left anywhere, and every object has an owner."""
        data = self.daemon.data
        self._await("left of deleted topics", lambda: bucket.left_of(deleted, self.remotely, data, self.state))
        self._await("owned by nobody", lambda: bucket.unowned(self.remotely, self.state))

    def _await(self, what: str, look: Callable[[], list[str]]) -> None:
        found: list[str] = []
        for _ in range(int(QUIET_S * 4)):
            found = look()
            if not found:
                return
            threading.Event().wait(0.25)
        raise AssertionError(f"{what}: {found}")
