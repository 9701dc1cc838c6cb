"""What a restore keeps beside its target until it is whole: where from, and the new ids of its topics."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.ids import ID_BYTES, Uuid
from tierd.remote.documents import Document, Id


@dataclass(frozen=True, slots=True, kw_only=True)
class NewId:
    """A restored topic is another one than its source, unless its id was to be kept: both may go on, in one bucket."""

    source: Id
    topic_id: Id


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """A partition is to end at *offset*."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody wants; another run of the same restore wants the same."""

    url: str
    wanted: tuple[str, ...] = ()
    """The topics that were asked for by name; none: all."""
    until_ms: int | None = None
    ends: tuple[End, ...] = ()
    """By topic and partition; those of others are where the bucket's are."""

    keep_ids: bool = False
    kafka: bool = False
    """Into a directory that Kafka has formatted."""

    @property
    def cuts(self) -> bool:
        return self.until_ms is not None or bool(self.ends)

    def __str__(self) -> str:
        what = f"topics {', '.join(self.wanted)}" if self.wanted else "all topics"
        until = "" if self.until_ms is None else f", until {self.until_ms} ms"
        ends = ", to given offsets" if self.ends else ""
        how = f"{', under their ids' if self.keep_ids else ''}{', for Kafka' if self.kafka else ''}"
        return f"{self.url}, {what}{until}{ends}{how}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    asked: Asked
    topics: tuple[NewId, ...] = ()
    groups_id: Id | None = None
    """Of the topic that the offsets of groups are kept in."""
    ends: tuple[End, ...] = ()
    """Of all partitions, when they are cut: the bucket may have more at the next run, and that must not move them."""

    def new_id(self, source: Uuid) -> Uuid:
        return next(one.topic_id for one in self.topics if one.source == source)

    @property
    def ids(self) -> dict[Uuid, Uuid]:
        """New ones by those in the bucket."""
        return {one.source: one.topic_id for one in self.topics}

    def with_ids(self, sources: Iterable[Uuid]) -> "Journal":
        """With an id for each of these topics; those that are there stay."""
        known = {one.source for one in self.topics}
        new = (NewId(source=one, topic_id=self._id_for(one)) for one in sources if one not in known)
        return replace(self, topics=(*self.topics, *new), groups_id=self.groups_id or _random_id())

    def _id_for(self, source: Uuid) -> Uuid:
        return source if self.asked.keep_ids else _random_id()


JOURNAL = Document(Journal)


def load(path: Path) -> Journal | None:
    """None when no restore is under way. Raises CorruptFile."""
    try:
        return JOURNAL.parse(path.read_bytes(), str(path))
    except FileNotFoundError:
        return None


def keep(disk: Disk, path: Path, journal: Journal) -> None:
    """Durable when it returns. Raises DiskFull, OSError."""
    publish(disk, path, JOURNAL.encode(journal))


def _random_id() -> Uuid:
    """As Kafka's, none begins with a dash: they are typed after options."""
    while True:
        found = Uuid(os.urandom(ID_BYTES))
        if not str(found).startswith("-"):
            return found
