"""One data directory: its lock and identity, its checkpoints, and the logs in it. Loop thread only unless said."""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from tierd.base.clock import Clock
from tierd.base.disk import Disk, publish
from tierd.base.ids import ID_BYTES, TopicPartition, Uuid
from tierd.config.topic import KIB, MIB, TopicSettings
from tierd.config.topic_names import KRAFT_LOG
from tierd.storage import names
from tierd.storage.context import LogContext
from tierd.storage.dirlock import DirectoryLock
from tierd.storage.doomed import Doomed, Leaving
from tierd.storage.fdcache import FdCache
from tierd.storage.flush import flush_all
from tierd.storage.folder_copy import FolderCopy
from tierd.storage.folders import make_folder
from tierd.storage.gaps import GapFile
from tierd.storage.health import DirectoryHealth, WatchedDisk
from tierd.storage.identity import identify, stand_in_id, topic_id_of, write_topic_id
from tierd.storage.indexcache import IndexCache
from tierd.storage.loader import Checkpoints, LoadedLog, load_log
from tierd.storage.log import Log
from tierd.storage.metadata import encode_clean_shutdown
from tierd.storage.offset_files import OffsetFiles
from tierd.storage.opening import Found, open_logs
from tierd.storage.progress import Meter, OnProgress, no_progress
from tierd.storage.remaking import RemadeIndexes, remake
from tierd.storage.repairs import Repairs
from tierd.storage.reserve import DiskReserve
from tierd.storage.segment import Segment
from tierd.storage.setaside import SetAside
from tierd.storage.starts import LogStarts
from tierd.storage.trash import Trash
from tierd.storage.txn_rebuild import remake_aborted

log = logging.getLogger(__name__)

SettingsFor = Callable[[TopicPartition], TopicSettings]
TopicIdFor = Callable[[TopicPartition], Uuid | None]

FREQUENT_CHECKPOINTS = (names.REPLICATION_CHECKPOINT, names.CLEANER_CHECKPOINT)
RARE_CHECKPOINTS = (names.RECOVERY_POINT_CHECKPOINT, names.LOG_START_CHECKPOINT)
"""They are also written at once where something depends on them."""
CHECKPOINTS = (*FREQUENT_CHECKPOINTS, *RARE_CHECKPOINTS)

_KRAFT_LOG_ID = Uuid((1).to_bytes(ID_BYTES, "big"))
"""Kafka's Uuid.METADATA_TOPIC_ID."""
NO_TOPIC_ID = "its partition.metadata is missing or broken, and nobody knows its topic's id"
_NO_BROKER_EPOCH = -1
_REBUILD_INTERVAL_BYTES = 4 * KIB
DEFAULT_RESERVE_BYTES = 256 * MIB


def _no_topic_id(_: TopicPartition) -> Uuid | None:
    return None


class LogDirectory:
    """Opened with `open`, or with `lock` and then `load`; given up with `close`."""

    def __init__(
        self, path: Path, disk: Disk, clock: Clock, lock: DirectoryLock, set_aside: Path, reserve: int
    ) -> None:
        self.path = path
        self.health = DirectoryHealth(path)
        """Says when the disk has failed: then nothing here is served any more, until a restart."""
        disk = WatchedDisk(disk, self.health)
        self.logs: dict[TopicPartition, Log] = {}
        self.unidentified: dict[TopicPartition, Path] = {}
        """Partition directories whose topic id nobody knows."""
        self.read_only: dict[TopicPartition, Log] = {}
        """The logs in them, where there are any: to be read, and never to be written to, rolled or dropped."""
        self.strange: list[str] = []
        """Names in the directory that mean nothing here; left alone."""
        self._disk = disk
        self._clock = clock
        self._lock = lock
        self._files = OffsetFiles(path, disk)
        self.starts = LogStarts(self._files, self.logs)
        self._kept_rows: dict[str, dict[TopicPartition, int]] = {}
        self._reserve_bytes = reserve
        self._fds = FdCache()
        self.set_aside = SetAside(set_aside, disk)
        self.trash = Trash(disk, clock)
        self.doomed = Doomed(path, disk, clock)
        self.repairs = Repairs()
        self._context = LogContext(
            disk=disk,
            clock=clock,
            fds=self._fds,
            indexes=IndexCache(self._remake, partial(remake_aborted, disk, self.set_aside), self.repairs),
            repairs=self.repairs,
            remake=self._remake,
            reserve=DiskReserve(path, disk, clock, reserve),
            set_aside=self.set_aside,
            trash=self.trash,
            persist_start=self.starts.persist,
        )
        self.context = self._context
        """What its logs share."""
        self.directory_id: Uuid
        self.cluster_id: str

    @classmethod
    def open(
        cls,
        path: Path,
        disk: Disk,
        clock: Clock,
        *,
        settings_for: SettingsFor,
        node_id: int,
        cluster_id: str | None,
        set_aside: Path,
        on_progress: OnProgress = no_progress,
        topic_id_for: TopicIdFor = _no_topic_id,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
    ) -> "LogDirectory":
        """`lock` and `load` in one."""
        self = cls.lock(
            path, disk, clock, node_id=node_id, cluster_id=cluster_id, set_aside=set_aside, reserve_bytes=reserve_bytes
        )
        try:
            self.load(settings_for=settings_for, topic_id_for=topic_id_for, on_progress=on_progress)
        except BaseException:
            self.close(clean=False)
            raise
        return self

    @classmethod
    def lock(
        cls,
        path: Path,
        disk: Disk,
        clock: Clock,
        *,
        node_id: int,
        cluster_id: str | None,
        set_aside: Path,
        reserve_bytes: int = DEFAULT_RESERVE_BYTES,
    ) -> "LogDirectory":
        """Lock the directory, made when missing, and learn whose it is. Nothing else is read or changed.

        Raises StartRefused when it is locked or somebody else's, DiskFull, OSError.
        """
        make_folder(disk, path)
        self = cls(path, disk, clock, DirectoryLock(path), set_aside, reserve_bytes)
        try:
            meta = identify(path, disk, node_id, cluster_id)
            assert meta.directory_id is not None
            assert meta.cluster_id is not None
            self.directory_id, self.cluster_id = meta.directory_id, meta.cluster_id
        except BaseException:
            self.close(clean=False)
            raise
        return self

    def load(
        self,
        *,
        settings_for: SettingsFor,
        topic_id_for: TopicIdFor = _no_topic_id,
        on_progress: OnProgress = no_progress,
    ) -> None:
        """Open every log, several at a time, repairing what an unclean stop left. Any thread, as long as it is the
        only one that uses the directory; *settings_for* and *topic_id_for* are called in it.

        *topic_id_for* knows ids whose `partition.metadata` is gone. Raises DiskFull, OSError, and what *on_progress*
        raises: then only `close` may follow.
        """
        begun_ms = self._clock.monotonic_ms()
        marker = self.path / names.CLEAN_SHUTDOWN
        clean = marker.exists()
        points = self._files.read(names.RECOVERY_POINT_CHECKPOINT)
        starts = self._files.read(names.LOG_START_CHECKPOINT)
        found = []
        for tp, directory in sorted(self._partitions().items()):
            given = Checkpoints(clean=clean, recovery_point=points.get(tp, 0), log_start=starts.get(tp))
            topic_id, settings = self._identified(tp, directory, topic_id_for), settings_for(tp)
            if topic_id is None and tp in self.unidentified and any(directory.glob(f"*{names.Suffix.LOG}")):
                topic_id, settings = stand_in_id(tp.topic), replace(settings, remote_storage_enable=False)
            if topic_id is not None:
                one = Found(name=tp, topic_id=topic_id, directory=directory, settings=settings, given=given)
                found.append(one)
        meter = Meter(self.path, len(found), on_progress)
        for one, loaded in zip(found, open_logs(self._context, found, meter), strict=True):
            opened = self._opened(one, loaded)
            if one.name in self.unidentified:
                self._for_reading(opened)
            else:
                self.logs[one.name] = opened
        cleaned = self._files.read(names.CLEANER_CHECKPOINT)
        for tp, opened in self.logs.items():
            opened.compaction.know(cleaned.get(tp))
        for name, rows in (
            (names.RECOVERY_POINT_CHECKPOINT, points),
            (names.LOG_START_CHECKPOINT, starts),
            (names.CLEANER_CHECKPOINT, cleaned),
        ):
            self._kept_rows[name] = {tp: rows[tp] for tp in self.unidentified if tp in rows}
        self.starts.kept = self._kept_rows[names.LOG_START_CHECKPOINT]
        self.starts.know({tp: starts[tp] for tp in self.logs if tp in starts})
        if clean:
            # From here on the files change: a crash must find the directory unclean.
            self._disk.unlink(marker)
        self._disk.fsync_dir(self.path)  # what was read of checkpoints must not be forgotten by a second cut either
        reread = {"segments": meter.segments_read, "bytes": meter.bytes_read}
        took_ms = self._clock.monotonic_ms() - begun_ms
        log.info("logs opened", extra={"directory": str(self.path), "logs": len(found), **reread, "took_ms": took_ms})

    def _partitions(self) -> dict[TopicPartition, Path]:
        """The partition directories; those on their way out are noted for `purge`."""
        found = {}
        for entry in sorted(self.path.iterdir()):
            if not entry.is_dir():
                continue
            tp = names.parse_partition_directory(entry.name)
            marked = names.parse_marked_directory(entry.name)
            if tp is not None and not _is_krafts(tp, entry):
                found[tp] = entry
            elif marked is not None and marked.mark is names.DirectoryMark.DELETE:
                self.doomed.found(entry)
            else:
                self.strange.append(entry.name)
        return found

    def _identified(self, tp: TopicPartition, directory: Path, topic_id_for: TopicIdFor) -> Uuid | None:
        known = topic_id_of(directory)
        topic_id = known or topic_id_for(tp)
        if topic_id is None and tp.topic == KRAFT_LOG:
            self.strange.append(directory.name)
        elif topic_id is None:
            self.unidentified[tp] = directory
            log.error("partition.metadata is missing or broken: only for reading", extra={"partition": str(tp)})
        elif known is None:
            write_topic_id(directory, self._disk, topic_id)
        if topic_id is not None:  # offsets may have been found lost while it was not known
            self.set_aside.gap_file(tp, topic_id).take_over(self._gaps_of_nobody(tp))
        return topic_id

    def _gaps_of_nobody(self, tp: TopicPartition) -> GapFile:
        return self.set_aside.gap_file(tp, stand_in_id(tp.topic))

    def _for_reading(self, opened: Log) -> None:
        """Show all that was found, once it is on the disk where the settings ask for that. Raises TierdError."""
        opened.read_only = f"{opened.name} is read-only: {NO_TOPIC_ID}"
        self.read_only[opened.name] = opened
        opened.log_start = opened.local_start  # what the bucket has of it is nobody's to read
        if opened.high_watermark < opened.log_end and (job := opened.unflushed(active=True)) is not None:
            job.run()
            opened.flushed(job)

    def _opened(self, found: Found, loaded: LoadedLog) -> Log:
        for cut in loaded.cuts:
            facts = {"partition": str(found.name), "base": cut.base, "position": cut.position, "bytes": cut.size_bytes}
            log.warning("cut and set aside: %s", cut.reason, extra=facts)
        opened = Log(self._context, found.name, found.topic_id, found.directory, found.settings, loaded)
        for start, stop in opened.gaps:
            log.error("offsets are lost", extra={"partition": str(found.name), "start": start, "stop": stop})
        return opened

    def _remake(self, segment: Segment, size_bytes: int) -> RemadeIndexes:
        log.warning("an index is missing or wrong, rebuilding it", extra={"log": segment.where})
        return remake(self._disk, segment, _REBUILD_INTERVAL_BYTES, size_bytes)

    # -- partitions come and go --

    def make(self, tp: TopicPartition, topic_id: Uuid, settings: TopicSettings) -> Log:
        """A new, empty log of a topic that the registry has durably, not yet one of `logs`. Any thread.

        Raises FileExistsError, DiskFull, OSError.
        """
        directory = self.path / names.partition_directory(tp)
        if tp in self.logs or (directory.is_dir() and any(directory.glob(f"*{names.Suffix.LOG}"))):
            raise FileExistsError(f"{directory} has a log already")
        for name in CHECKPOINTS:  # what they say of an older partition of this name must not hold for this one
            self._files.strike(name, tp)
        self._gaps_of_nobody(tp).forget()
        self._disk.mkdir(directory)
        write_topic_id(directory, self._disk, topic_id)
        given = Checkpoints(clean=True, log_start=0)
        found = Found(name=tp, topic_id=topic_id, directory=directory, settings=settings, given=given)
        return self._opened(found, load_log(self._context, directory, tp, topic_id, settings, given))

    def adopt(self, made: Log) -> None:
        """A log that `make` has made is one of `logs` from now on."""
        self.unidentified.pop(made.name, None)
        for rows in self._kept_rows.values():
            rows.pop(made.name, None)
        self.logs[made.name] = made

    def create(self, tp: TopicPartition, topic_id: Uuid, settings: TopicSettings) -> Log:
        """`make` and `adopt` in one."""
        made = self.make(tp, topic_id, settings)
        self.adopt(made)
        return made

    def remove(self, tp: TopicPartition) -> None:
        """Take a partition out: its directory gets a `-delete` name, durable when this returns; `purge` empties it."""
        self.doomed.doom(self.withdraw(tp))

    def withdraw(self, tp: TopicPartition) -> Leaving:
        """A log of `logs` no more, its descriptors given back; its directory is still to be doomed."""
        self.logs[tp].close()
        self.logs[tp].forget()
        return self._leaving(tp)

    def let_go(self, tp: TopicPartition) -> None:
        """As `remove`, of a log that goes on elsewhere."""
        self.doomed.doom(self._leaving(tp))

    def _leaving(self, tp: TopicPartition) -> Leaving:
        gone = self.logs.pop(tp)
        self.starts.forget(tp)
        return Leaving(tp, names.partition_directory(tp), gone.settings.file_delete_delay_ms)

    def purge(self) -> int:
        """Unlink what was evicted or deleted long enough ago; the number of files. Any thread; one at a time."""
        return self.trash.empty() + self.doomed.purge()

    # -- a partition moves in from another directory: copy_of, rounds, take_in here, let_go there --

    def copy_of(self, found: Log, home: "LogDirectory") -> FolderCopy:
        """A copy of a log of *home*, to be made in a `-future` folder here."""
        folder = names.marked_directory(found.name, uuid4(), names.DirectoryMark.FUTURE)
        return FolderCopy(found.directory, self.path / folder, self._disk, home.health, self._reserve_bytes)

    def take_in(self, found: Log, copy: FolderCopy) -> None:
        """The copy, whole and durable, gets the partition's name, and the log goes on in it. When this raises
        (DiskFull, OSError) the log is where it was, though the name may last."""
        directory = self.path / names.partition_directory(found.name)
        if found.start_must_be_kept:
            self.starts.persist(found.name, found.log_start)
        self._disk.replace(copy.target, directory)
        self._disk.fsync_dir(self.path)
        found.rehome(self._context, directory)
        self.logs[found.name] = found

    def discard(self, tp: TopicPartition, name: str) -> None:
        """Drop the copy *name* of a move that was given up; fine when it is not there. Raises OSError."""
        if (self.path / name).is_dir():
            self.doomed.doom(Leaving(tp, name, 0))

    # -- checkpoints --

    def checkpoint_job(self, files: Collection[str] = CHECKPOINTS) -> Callable[[], None]:
        """Fix what checkpoint *files* should say now; call the result in any thread to write those that changed."""
        points = {tp: found.recovery_point for tp, found in self.logs.items()}
        marks = {tp: found.high_watermark for tp, found in self.logs.items()}
        starts = self.starts.rows()
        cleaned = {tp: to for tp, found in self.logs.items() if (to := found.compaction.cleaned_to) is not None}
        prepared = [
            self._files.prepare(name, {**self._kept_rows.get(name, {}), **rows})
            for name, rows in (
                (names.LOG_START_CHECKPOINT, starts),
                (names.RECOVERY_POINT_CHECKPOINT, points),
                (names.REPLICATION_CHECKPOINT, marks),
                (names.CLEANER_CHECKPOINT, cleaned),
            )
            if name in files and (name != names.CLEANER_CHECKPOINT or rows or self._files.known(name))
        ]

        def write() -> None:
            for file in prepared:
                file.write()

        return write

    def write_checkpoints(self) -> None:
        """Durable when it returns. Raises DiskFull, OSError."""
        self.checkpoint_job()()
        self.starts.know(self.starts.rows())

    # -- the end --

    def close(self, clean: bool) -> None:
        """Give everything up. *clean* flushes and trims first, so that the next start recovers nothing."""
        try:
            if clean and self.health.reason is None and flush_all((*self.logs.values(), *self.read_only.values())):
                self.write_checkpoints()
                publish(self._disk, self.path / names.CLEAN_SHUTDOWN, encode_clean_shutdown(_NO_BROKER_EPOCH))
        finally:
            for found in (*self.logs.values(), *self.read_only.values()):
                found.close()
            self._fds.close()
            self._lock.release()


def _is_krafts(tp: TopicPartition, directory: Path) -> bool:
    """Whether it is the log of Kafka's controller, and not a topic that an older tierd made under its name."""
    return tp.topic == KRAFT_LOG and topic_id_of(directory) == _KRAFT_LOG_ID
