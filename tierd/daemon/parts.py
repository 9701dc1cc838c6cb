"""Opens everything in the one safe order: locks, registry, logs, the bucket's claim, partitions, clients."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tierd.base.clock import Clock, SystemClock
from tierd.base.disk import Disk
from tierd.base.errors import StartRefused
from tierd.base.ids import TopicPartition
from tierd.broker.archived import Archived
from tierd.broker.broker import Broker
from tierd.broker.homes import Home
from tierd.broker.local_tier import LocalLog
from tierd.broker.partitions import Partitions
from tierd.broker.producer_ids import stay_above
from tierd.broker.recovering import made_here
from tierd.broker.registry import Registry, settings_for, topic_id_for
from tierd.config.model import Settings
from tierd.config.state_files import CATALOG, REGISTRY, SET_ASIDE
from tierd.daemon import recovery, state
from tierd.daemon.directories import DataDirectories, open_registry
from tierd.daemon.group_files import GroupFiles
from tierd.daemon.identity import identity
from tierd.daemon.topic_ids import TopicIds, of_bucket, of_catalog, of_neighbours
from tierd.storage import ballast
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk
from tierd.storage.folders import make_folder
from tierd.storage.progress import OnProgress, no_progress
from tierd.tiering.archive.link import COMMAND as ARCHIVE_COMMAND
from tierd.tiering.archive.link import ArchiveLink
from tierd.tiering.link import COMMAND, TierLink
from tierd.tiering.options import OpenReport, TiererOptions, TopicState
from tierd.worker.link import CLEANING, WorkerLink

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Opened:
    """What is open of a data directory and its state; blocking work, done in a thread before the loop owns it."""

    settings: Settings
    clock: Clock = field(default_factory=SystemClock)
    disk: Disk = field(default_factory=PosixDisk)
    tierer: Sequence[str] = COMMAND
    """The command that runs one."""
    archivist: Sequence[str] = ARCHIVE_COMMAND
    """And one for a bucket that is only read."""
    on_progress: OnProgress = no_progress
    lost: Sequence[Path] = ()
    """Data directories that are gone for good."""
    _directories: DataDirectories = field(init=False)
    _registry: Registry | None = None

    def __post_init__(self) -> None:
        self._directories = DataDirectories(self.settings.data_dirs, frozenset(self.lost))

    @property
    def directories(self) -> list[LogDirectory]:
        """Those that can be used."""
        return self._directories.usable

    @property
    def unusable(self) -> list[Home]:
        return self._directories.unusable

    @property
    def registry(self) -> Registry:
        """Made once a data directory is locked: that lock guards the state directory, too."""
        if self._registry is None:
            self._registry = Registry.open(self.settings.state_dir / REGISTRY)
        return self._registry

    @property
    def cluster_id(self) -> str:
        return self.directories[0].cluster_id

    def open(self) -> None:
        """Lock every data directory, see that all belongs together, then recover them side by side.

        Raises StartRefused, DiskFull, OSError, and what `on_progress` raises; then `close` what is open.
        """
        try:
            make_folder(self.disk, self.settings.state_dir)
        except OSError as error:
            raise StartRefused(
                f"the state directory {self.settings.state_dir} cannot be made: {error.strerror}; say --state DIR"
            ) from error
        ballast.look(self.settings.state_dir)
        self._registry = open_registry(self.settings.state_dir / REGISTRY)
        self._directories.lock(self._lock, self._registry)
        state.check_mode(self.registry, self.settings.mode, self.settings.state_dir)
        self._directories.check(self.registry, self.settings.state_dir)
        state.check_remote(self.registry, self.settings.remote.url, self.settings.state_dir)
        settings_of = settings_for(self.registry, self.settings.topic_defaults)
        topic_ids = self._topic_ids()

        def load(directory: LogDirectory) -> None:
            directory.load(settings_for=settings_of, topic_id_for=topic_ids, on_progress=self.on_progress)

        self._directories.load(load)

    def _topic_ids(self) -> TopicIds:
        settings = self.settings
        registered = topic_id_for(self.registry)
        return TopicIds(
            [
                ("the registry", lambda topic: [one] if (one := registered(TopicPartition(topic, 0))) else []),
                ("the other partitions", of_neighbours(one.path for one in self.directories)),
                ("the catalog", of_catalog(settings.state_dir / CATALOG)),
                ("the bucket", of_bucket(settings.remote, self.disk, self.clock)),
            ]
        )

    def remember(self) -> None:
        """The registry has everything that the directories hold."""
        self._directories.remember(self.registry)

    def _lock(self, path: Path, cluster_id: str | None) -> LogDirectory:
        return LogDirectory.lock(
            path,
            self.disk,
            self.clock,
            node_id=self.settings.node_id,
            cluster_id=cluster_id,
            set_aside=self.settings.state_dir / SET_ASIDE,
            reserve_bytes=ballast.reserve_bytes(self.settings.state_dir, path, self.settings.disk_reserve_bytes),
        )

    def close(self, *, clean: bool) -> None:
        """Every directory gets its chance; the first error is raised at the end."""
        first: OSError | None = None
        for directory in self.directories:
            try:
                directory.close(clean)
            except OSError as error:
                log.error("data directory not closed cleanly: %s", error, extra={"directory": str(directory.path)})
                first = first or error
        if self._registry is not None:
            self._registry.close()
        if first is not None:
            raise first


async def assemble(
    opened: Opened,
    *,
    take_over: bool = False,
    recover: bool = False,
    going_on: Callable[[Callable[[], str]], None] = lambda text: None,
) -> tuple[Broker, TierLink | None]:
    """Claim the bucket, begin every partition above it, put the broker together. *going_on* is given what says how far
    that is. Raises StartRefused."""
    settings, registry, clock = opened.settings, opened.registry, opened.clock
    recovering = recovery.begin(registry, opened.directories, settings.remote.url, asked_for=recover)
    partitions = Partitions(
        registry,
        opened.directories,
        settings.topic_defaults,
        clock,
        node_id=settings.node_id,
        unusable=opened.unusable,
    )
    partitions.load()
    opened.remember()
    if take_over and recovering is None and all(partition.internal for partition in partitions):
        raise StartRefused(
            f"{', '.join(map(str, settings.data_dirs))}: no partition lies there: --take-over is for a copy of a data"
            " directory; --recover goes on from the bucket alone"
        )
    local_epoch = max((partition.log.leader_epoch for partition in partitions), default=-1)
    if settings.remote.url is None:
        await partitions.begin(local_epoch + 1, {}, None)
        return _broker(opened, partitions, None), None
    local = LocalLog(partitions, opened.clock)
    local.tier = link = _link(opened, local)
    going_on(_looking(clock))
    report = await link.open(
        [partition.view() for partition in partitions],
        topics=_topic_states(partitions),
        local_epoch=local_epoch,
        identity=identity(*state.holder(registry, opened.directories)),
        recover=take_over or recover,
        registry_epoch=state.last_epoch(registry),
        archive_id=state.archive_id(registry),
        offline=[part for part, _ in partitions.outages],
        lost_host=recovering is not None,
        if_silent=not take_over,
    )
    state.remember_remote(registry, settings.remote.url)
    await _take_what_is_said(registry, partitions, local, link, report)
    try:
        if recovering is not None:
            await recovering.take_topics(partitions, report)
        going_on(partial(_begun, partitions))
        await partitions.begin(report.claim.epoch, report.remotes, link, waiting=report.waiting, outside=report.outside)
        broker = _broker(opened, partitions, link)
        if recovering is not None:
            await recovering.finish(broker, link)
    except BaseException:
        await link.close()
        raise
    local.begin_waiting()
    return broker, link


async def _take_what_is_said(
    registry: Registry, partitions: Partitions, local: LocalLog, link: TierLink, report: OpenReport
) -> None:
    """What the bucket has said counts where partitions begin, and at the next start."""
    await partitions.changes.settle()
    if state.last_epoch(registry) is None:  # the registry is new: what an earlier one knew the bucket says
        if report.claimed_ms is not None:
            stay_above(registry, report.claimed_ms)
        await made_here(partitions, (topic.topic_id for topic in report.topics if topic.adopted is False), link)
    if not local.unnoted:  # else the next start must be told of the newer settings again
        state.remember_epoch(registry, report.claim.epoch)
    state.remember_archive(registry, report.archive_id)


def _looking(clock: Clock) -> Callable[[], str]:
    """It goes on as long as it takes: a bucket that is silent ends it, as does a tierer that hangs."""
    begun_ms = clock.monotonic_ms()
    return lambda: f"looking at the bucket for {(clock.monotonic_ms() - begun_ms) // 1000} s"


def _begun(partitions: Partitions) -> str:
    begun = sum(partition.log.leader_epoch == partitions.epoch for partition in partitions)
    return f"partitions begun: {begun} of {len(partitions)}"


async def assemble_archive(opened: Opened) -> tuple[Broker, TierLink]:
    """Show what the bucket has, begin the broker's own topics, put the broker together. Nothing is claimed.

    Raises StartRefused, RemoteUnavailable.
    """
    settings, registry, clock = opened.settings, opened.registry, opened.clock
    partitions = Partitions(
        registry, opened.directories, settings.topic_defaults, clock, node_id=settings.node_id, unusable=opened.unusable
    )
    partitions.load()
    opened.remember()
    shows = Archived(partitions, opened.directories[0])
    link = ArchiveLink(_options(settings), LocalLog(partitions, clock), shows, clock, command=opened.archivist)
    await link.open_archive(identity(*state.holder(registry, opened.directories)))
    state.remember_remote(registry, settings.remote.url)
    try:
        local_epoch = max((partition.log.leader_epoch for partition in partitions), default=-1)
        await partitions.begin(local_epoch + 1, {}, None)
    except BaseException:
        await link.close()
        raise
    return _broker(opened, partitions, link), link


def _link(opened: Opened, local: LocalLog) -> TierLink:
    return TierLink(_options(opened.settings), local, opened.clock, command=opened.tierer)


def _options(settings: Settings) -> TiererOptions:
    return TiererOptions(
        remote=settings.remote,
        state_dir=settings.state_dir,
        node_id=settings.node_id,
        retention_interval_ms=settings.retention_check_ms,
        delete_interval_ms=settings.retention_check_ms,
        disk_evict_bytes=settings.disk_evict_bytes,
    )


def _broker(opened: Opened, partitions: Partitions, link: TierLink | None) -> Broker:
    settings, clock = opened.settings, opened.clock
    worker = WorkerLink(clock, command=CLEANING) if settings.cleaner.enabled else None
    return Broker(
        settings,
        opened.registry,
        partitions,
        link,
        clock,
        cluster_id=opened.cluster_id,
        worker=worker,
        looker=WorkerLink(clock),
        groups=None if link is None else GroupFiles(link),
    )


def _topic_states(partitions: Partitions) -> list[TopicState]:
    """Live topics, and deleted ones whose tombstone the bucket does not have yet; Kafka's own are not for it."""
    live = [topic.row for topic in partitions.topics() if not topic.internal]
    return [
        TopicState(
            topic=row.name,
            topic_id=row.id,
            partitions=row.partitions,
            config=dict(row.config),
            created_ms=row.created_ms,
            deleted_ms=row.deleted_ms,
            adopted=row.adopted,
        )
        for row in (*live, *partitions.registry.deleted())
    ]
