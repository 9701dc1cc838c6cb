"""A LocalTier over partition directories that a real Kafka wrote: the broker's side of the tierer in tests."""

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from tierd.base.ids import PartitionId, Uuid
from tierd.config.topic import TopicSettings
from tierd.remote.view import Claim, RemotePartition
from tierd.storage import names
from tierd.storage.scan import scan_segment
from tierd.storage.view import PartitionView, SegmentView


def segments_of(directory: Path) -> list[SegmentView]:
    """Every segment of a directory with what its batches say; the last one is the active one."""
    bases = sorted(int(path.stem) for path in directory.glob("*.log"))
    found = []
    for base, after in zip(bases, [*bases[1:], None], strict=True):
        raw = (directory / names.log_file(base)).read_bytes()
        headers = [header for _, header in scan_segment(lambda at, n, raw=raw: raw[at : at + n], len(raw), base)]
        times = [header.max_timestamp_ms for header in headers]
        end = headers[-1].next_offset if headers else base
        found.append(
            SegmentView(
                base=base,
                next_base=end if after is None else after,
                size_bytes=len(raw),
                largest_timestamp_ms=max(times, default=None),
                append_ms=1_700_000_000_000,
            )
        )
    return found


def view_of(directory: Path, settings: TopicSettings, *, last_stable: int | None = None) -> PartitionView:
    """The directory as a broker that has just recovered it would show it; nothing is open, all is flushed."""
    name = names.parse_partition_directory(directory.name)
    assert name is not None
    topic_id = (directory / "partition.metadata").read_text().rpartition("topic_id: ")[2].strip()
    *closed, active = segments_of(directory)
    end = active.next_base
    return PartitionView(
        name=name,
        id=PartitionId(Uuid.parse(topic_id), name.partition),
        directory=directory,
        settings=settings,
        log_start=closed[0].base if closed else active.base,
        local_start=closed[0].base if closed else active.base,
        log_end=end,
        last_stable=end if last_stable is None else last_stable,
        recovery_point=active.base,
        leader_epoch=2,
        closed=tuple(closed),
        active_base=active.base,
        active_bytes=active.size_bytes,
        active_append_ms=1_700_000_000_000 if active.size_bytes else None,
    )


class FolderTier:
    """Evicts for real: files go. *changed* is told every new view, as the broker tells the tierer."""

    def __init__(self, changed: Callable[[PartitionView], None] = lambda _: None) -> None:
        self.changed = changed
        self._news = asyncio.Event()
        self.views: dict[PartitionId, PartitionView] = {}
        self.remotes: dict[PartitionId, RemotePartition] = {}
        self.claims: list[Claim] = []
        self.tombstones: list[Uuid] = []
        self.newer: dict[Uuid, Mapping[str, str]] = {}
        self.steps: list[str] = []

    def adopt(
        self, source: Path, target: Path, settings: TopicSettings, last_stable: int | None = None
    ) -> PartitionView:
        """Take a copy of a recorded partition."""
        directory = target / source.name
        shutil.copytree(source, directory)
        view = view_of(directory, settings, last_stable=last_stable)
        self.views[view.id] = view
        return view

    def roll(self, part: PartitionId) -> PartitionView:
        """Close the active segment without beginning a new file: enough for the tierer."""
        view = self.views[part]
        active = segments_of(view.directory)[-1]
        closed = (*view.closed, active) if view.active_bytes else view.closed
        return self._now(
            replace(
                view,
                closed=closed,
                active_base=view.log_end,
                active_bytes=0,
                active_append_ms=None,
                recovery_point=view.log_end,
            )
        )

    def set(self, part: PartitionId, **facts: object) -> PartitionView:
        return self._now(replace(self.views[part], **facts))  # type: ignore[arg-type]

    async def until(self, condition: Callable[[], bool]) -> None:
        """Look again after each thing that the tierer did or said here; the test's timeout ends a wait in vain."""
        while not condition():
            self._news.clear()
            await self._news.wait()

    def _now(self, view: PartitionView) -> PartitionView:
        self._news.set()
        self.views[view.id] = view
        self.changed(view)
        return view

    # --- LocalTier ---------------------------------------------------------------------------------------------------
    async def evict(self, part: PartitionId, local_start: int) -> int:
        view = self.views[part]
        gone = [one for one in view.closed if one.next_base <= local_start]
        for segment in gone:
            (view.directory / names.log_file(segment.base)).unlink()
        self.steps.append(f"evict {view.name} {local_start}")
        kept = tuple(one for one in view.closed if one not in gone)
        self._now(replace(view, closed=kept, local_start=max(view.local_start, local_start)))
        return self.views[part].local_start

    async def move_log_start(self, part: PartitionId, log_start: int) -> int:
        view = self.views[part]
        self.steps.append(f"log start {view.name} {log_start}")
        self._now(replace(view, log_start=max(view.log_start, log_start)))
        await self.evict(part, log_start)
        return self.views[part].log_start

    def remote_changed(self, remote: RemotePartition) -> None:
        self.remotes[remote.id] = remote
        self._news.set()

    def claim_changed(self, claim: Claim) -> None:
        self.claims.append(claim)
        self._news.set()

    def topic_is_newer(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        self.newer[topic_id] = config

    def tombstone_written(self, topic_id: Uuid) -> None:
        self.tombstones.append(topic_id)
