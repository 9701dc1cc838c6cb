"""Restores buckets in memory into directories, with `tierd restore`'s own engine."""

import errno
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from kit.failing_disk import FailingDisk
from tierd.base.disk import Disk
from tierd.base.ids import TopicPartition
from tierd.remote.open import Bucket
from tierd.remote.readonly import ReadOnlyStore
from tierd.storage.disk import PosixDisk
from tierd.tiering.archive.survey import Survey
from tierd.tiering.catalog import Catalog
from tierd.tiering.restore.cutting import Cutting
from tierd.tiering.restore.journal import Asked, Journal
from tierd.tiering.restore.partition import Restored
from tierd.tiering.restore.plan import Plan, make_plan
from tierd.tiering.restore.run import Progress, Restore
from tierd.tiering.restore.walk import Bound


@dataclass
class Restoring:
    """One restore, in as many runs as it takes."""

    bucket: Bucket
    root: Path
    disk: Disk = field(default_factory=PosixDisk)
    seen: list[Progress] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.bucket = replace(self.bucket, store=ReadOnlyStore(self.bucket.store))
        self.journal = Journal(asked=Asked(url=self.bucket.url))
        self.to.mkdir(exist_ok=True)

    @property
    def to(self) -> Path:
        return self.root / "restored"

    @contextmanager
    def survey(self) -> Iterator[Survey]:
        catalog = Catalog.open(self.root / "survey.sqlite")
        try:
            yield Survey(self.bucket, catalog)
        finally:
            catalog.close()
            (self.root / "survey.sqlite").unlink()

    def plan(self, *topics: str, until_ms: int | None = None, ends: dict[str, int] | None = None) -> Plan:
        """*ends*: offsets by partition."""
        with self.survey() as survey:
            plan = make_plan(survey, topics)
        if until_ms is None and ends is None:
            return plan
        bounds = {
            one.source: Bound(until_ms=until_ms, offset=(ends or {}).get(str(one.name)))
            for one in plan.partitions
            if ends is None or str(one.name) in ends
        }
        return plan.ending(Cutting(self.bucket, 3).run(plan.partitions, bounds))

    def __call__(
        self, *topics: str, until_ms: int | None = None, ends: dict[str, int] | None = None
    ) -> Sequence[Restored]:
        return self.run(self.plan(*topics, until_ms=until_ms, ends=ends))

    def run(self, plan: Plan, beside: Mapping[TopicPartition, int] = MappingProxyType({})) -> Sequence[Restored]:
        """*beside*: ends of partitions that the test has made there."""
        self.journal = self.journal.with_ids(one.topic.topic_id for one in plan.topics)
        self.seen.clear()
        return Restore(self.bucket, self.disk, self.to, plan, self.journal, 3, self.seen.append, beside).run()


def files(folder: Path) -> dict[str, bytes]:
    """Contents by path below *folder*."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class Dying(FailingDisk):
    """Fails for good after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.left = steps

    def check(self, step: str, *paths: Path) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EIO, step)
