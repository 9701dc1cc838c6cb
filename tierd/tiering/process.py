"""The tierer's process: one loop behind the socket pair. It ends as soon as its socket closes.

First message: Configure (lock, catalog, bucket, reader), second: Open; then questions and notices in any order.
"""

import asyncio
import fcntl
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from tierd.base.clock import Clock, SystemClock
from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile, DiskFull, StartRefused, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.config.state_files import CACHE, CATALOG, TIERER_LOCK, USAGE
from tierd.ipc.calls import Calls, Failed, failed
from tierd.ipc.channel import Channel, ChannelClosed
from tierd.remote.keyring import load_ring
from tierd.remote.open import Bucket, limits_of, open_store
from tierd.remote.view import Claim, RemotePartition
from tierd.remote.watched import WatchedStore
from tierd.storage.database import DatabaseDamaged, set_aside
from tierd.storage.disk import PosixDisk
from tierd.storage.view import LogSlice
from tierd.tiering import bucket_calls, question_calls
from tierd.tiering import messages as m
from tierd.tiering.catalog import Catalog
from tierd.tiering.options import TiererOptions
from tierd.tiering.reader import ReaderOptions, RemoteReader
from tierd.tiering.segments import RemoteReads
from tierd.tiering.tierer import Tierer
from tierd.tiering.usage import Usage
from tierd.tiering.verbs import Outcome, VerbProgress, VerbResult

log = logging.getLogger(__name__)

_LOCK_LOOK_S = 0.1
_TAKE_AGAIN_S = 1.0
EXIT_FATAL = 70


class BrokerCalls:
    """The LocalTier of this process: calls of the broker over the channel."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.calls = Calls(m.pack)

    async def evict(self, part: PartitionId, local_start: int) -> int:
        reply, _ = await self.calls.ask(self._channel, lambda n: m.EvictLocal(n, part, local_start))
        return int(reply.offset)

    async def move_log_start(self, part: PartitionId, log_start: int) -> int:
        reply, _ = await self.calls.ask(self._channel, lambda n: m.MoveLogStart(n, part, log_start))
        return int(reply.offset)

    def remote_changed(self, remote: RemotePartition) -> None:
        self._channel.send(m.pack(m.RemoteChanged(remote)))

    def claim_changed(self, claim: Claim) -> None:
        self._channel.send(m.pack(m.ClaimChanged(claim)))

    def topic_is_newer(self, topic_id: Uuid, config: Mapping[str, str]) -> None:
        self._channel.send(m.pack(m.TopicIsNewer(topic_id, dict(config))))

    def tombstone_written(self, topic_id: Uuid) -> None:
        self._channel.send(m.pack(m.TombstoneWritten(topic_id)))


class Process:
    """Everything of one tierer process. *leave* ends it; tests give one that does not."""

    def __init__(self, sock: socket.socket, clock: Clock, disk: Disk, leave: Callable[[int], None]) -> None:
        self._clock = clock
        self._disk = disk
        self._leave = leave
        self._channel = Channel(sock, self._message, self._closed)
        self._broker = BrokerCalls(self._channel)
        self._tierer: Tierer | None = None
        self._store: WatchedStore | None = None
        self._usage: Usage | None = None
        self._stopped = False
        self._reader: RemoteReads | None = None
        self._lock_fd: int | None = None
        self._slices: dict[int, LogSlice] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._untaken: dict[PartitionId | Uuid, Callable[[], None]] = {}
        self._taking: asyncio.TimerHandle | None = None

    # --- messages ----------------------------------------------------------------------------------------------------
    def _message(self, body: bytes, fds: list[int]) -> None:
        message = m.unpack(body)
        match message:
            case m.MovedTo() | m.Done() | Failed():
                self._broker.calls.reply(message, fds)
            case m.PartitionChanged() | m.TopicChanged() if self._stopped:
                log.debug("told of a change while stopping")
            case m.PartitionChanged():
                self._take(message.view.id, lambda: self._open_tierer().partition_changed(message.view))
            case m.TopicChanged():
                self._take(message.state.topic_id, lambda: self._open_tierer().topic_changed(message.state))
            case m.Release():
                self._release(message.read)
            case m.Cancel():
                self._cancel(message.call)
            case _:
                self._answer(message)

    def _take(self, about: PartitionId | Uuid, work: Callable[[], None]) -> None:
        """A change is taken; while there is no room to note it, the last one is taken again and again."""
        self._untaken.pop(about, None)
        try:
            work()
        except DiskFull as error:
            if not self._untaken:
                log.warning("a change is not noted yet: %s", error)
            self._untaken[about] = work
            if self._taking is None:
                self._taking = asyncio.get_running_loop().call_later(_TAKE_AGAIN_S, self._take_again)

    def _take_again(self) -> None:
        self._taking = None
        for about, work in list(self._untaken.items()):
            if not self._stopped:
                self._take(about, work)

    def _answer(self, message: Any) -> None:
        task = asyncio.ensure_future(self._call(message))
        self._tasks[message.call] = task
        task.add_done_callback(lambda done: self._answered(message.call, done))

    def _answered(self, call: int, task: "asyncio.Task[None]") -> None:
        self._tasks.pop(call, None)
        if not task.cancelled() and task.exception() is not None:
            self.fatal(task.exception())

    async def _call(self, message: Any) -> None:
        handlers: dict[type, Callable[[Any], Coroutine[Any, Any, m.Message | None]]] = {
            m.Configure: self._configure,
            m.Open: self._open,
            m.Read: self._read,
            m.ByTime: self._by_time,
            m.LargestTimestamp: self._largest,
            m.GetSeed: self._seed,
            m.PublishHead: self._publish,
            m.Hold: self._hold,
            m.AskWhole: self._whole,
            m.GetStatus: self._status,
            m.Run: self._run,
            m.Ping: self._ping,
            m.Stop: self._stop,
            **bucket_calls.handlers(self._open_tierer),
            **question_calls.handlers(self._open_tierer, lambda: self._usage),
        }
        try:
            reply = await handlers[type(message)](message)
        except (TierdError, OSError) as error:
            reply = failed(message.call, error)
        if reply is not None:
            self._send(reply)

    def _send(self, message: m.Message, fds: list[int] | None = None) -> None:
        try:
            self._channel.send(m.pack(message), fds or [])
        except ChannelClosed:
            log.debug("a reply has nobody to go to")  # the process is about to end

    def _open_tierer(self) -> Tierer:
        if self._tierer is None:
            raise TierdError("the tierer is not configured yet")
        return self._tierer

    def _open_reader(self) -> RemoteReads:
        if self._reader is None:
            raise TierdError("the tierer is not configured yet")
        return self._reader

    # --- calls -------------------------------------------------------------------------------------------------------
    async def _configure(self, message: m.Configure) -> m.Message:
        options = message.options
        assert options.remote.url is not None
        ring = load_ring(options.remote.encryption.key_files, options.remote.encryption.active)
        self._lock_fd = await take_lock(options.state_dir / TIERER_LOCK, options.lock_wait_ms, self._clock)
        catalog = open_catalog(options.state_dir / CATALOG)
        self._usage = usage = Usage.begin(options.state_dir / USAGE, self._clock, options.remote.url)
        limits = limits_of(options.remote, self._clock)
        plain = open_store(
            options.remote.url, options.remote, disk=self._disk, clock=self._clock, meter=usage.meter, limits=limits
        )
        self._store = WatchedStore(plain.store, self._clock)
        limits.told.append(self._store.calls.went_on)
        bucket = Bucket(self._store, plain.keys, plain.url, ring)
        self._reader = reader = RemoteReader(
            bucket.store,
            catalog,
            options.state_dir / CACHE,
            self._clock,
            reader_options(options),
            ring,
            catalog.gaps.covers,
        )
        self._tierer = Tierer(
            options, self._clock, bucket, catalog, self._broker, disk=self._disk, forget=reader.forget, fatal=self.fatal
        )
        return m.Done(message.call)

    async def _open(self, message: m.Open) -> m.Message:
        tierer = self._open_tierer()
        report = await tierer.open(message.request)
        tierer.schedule()
        remotes = tuple(report.remotes.values())
        facts = report.topics, report.waiting, report.outside, report.archive_id, report.claimed_ms
        return m.Opened(message.call, report.claim, remotes, *facts)

    async def _read(self, message: m.Read) -> None:
        try:
            got = await self._open_reader().read(
                message.part,
                message.offset,
                max_bytes=message.max_bytes,
                stop=message.stop,
                committed=message.committed,
            )
        except CorruptFile as error:
            self._suspect(message.part, error.where)
            raise
        fds = list(dict.fromkeys(span.fd for span in got.spans))
        number = {fd: index for index, fd in enumerate(fds)}
        spans = tuple(m.SpanOf(number[span.fd], span.position, span.length) for span in got.spans)
        self._slices[message.call] = got
        self._send(m.ReadDone(message.call, spans, got.aborted, got.stop), fds)

    def _suspect(self, part: PartitionId, key: str) -> None:
        """What was read of *part* in the object *key* is damaged or gone."""
        self._open_tierer().retention.suspect(part, key)

    async def _by_time(self, message: m.ByTime) -> m.Message:
        reader = self._open_reader()
        found = await reader.by_time(message.part, message.timestamp_ms, start=message.start, stop=message.stop)
        return m.TimeFound(message.call, found)

    async def _largest(self, message: m.LargestTimestamp) -> m.Message:
        found = await self._open_reader().largest_timestamp(message.part, start=message.start, stop=message.stop)
        return m.TimeFound(message.call, found)

    async def _seed(self, message: m.GetSeed) -> m.Message:
        return m.SeedFound(message.call, await self._open_tierer().seed(message.part))

    async def _publish(self, message: m.PublishHead) -> m.Message:
        await self._open_tierer().publish_head(message.part)
        return m.Done(message.call)

    async def _hold(self, message: m.Hold) -> m.Message:
        await self._open_tierer().copying.hold(message.part)
        return m.Done(message.call)

    async def _whole(self, message: m.AskWhole) -> m.Message:
        retention = self._open_tierer().retention
        return m.Whole(message.call, await retention.whole(message.part, message.start, message.stop))

    async def _status(self, message: m.GetStatus) -> m.Message:
        return m.StatusFound(message.call, tuple(await self._open_tierer().status()))

    async def _run(self, message: m.Run) -> m.Message:
        def report(progress: VerbProgress) -> None:
            self._send(m.Progress(message.call, progress))

        verbs, rotation = self._open_tierer().verbs, self._open_tierer().rotation
        if message.verb == "keys":
            return m.Ran(message.call, VerbResult(outcome=Outcome.DONE, keys=rotation.uses()))
        if message.verb == "rotate":
            return m.Ran(message.call, await (rotation.plan() if message.dry else rotation.rotate(report)))
        if message.dry:
            return m.Ran(message.call, await verbs.plan(message.verb, roll=message.roll))
        if message.verb == "evict":
            return m.Ran(message.call, await verbs.evict(report))
        return m.Ran(message.call, await verbs.copy(wait=message.wait, timeout_ms=message.timeout_ms, report=report))

    async def _ping(self, message: m.Ping) -> m.Message:
        if self._store is None:
            return m.Alive(message.call, 0, 0)
        paused = self._tierer is not None and self._tierer.state.paused is not None
        return m.Alive(message.call, self._store.calls.silent_ms, self._store.calls.oldest_ms, paused)

    async def _stop(self, message: m.Stop) -> m.Message:
        self._stopped = True
        for task in [task for call, task in self._tasks.items() if call != message.call]:
            task.cancel()
        await self.close()
        return m.Done(message.call)

    async def close(self) -> None:
        if self._tierer is not None:
            tierer, self._tierer = self._tierer, None
            await tierer.close()
        if self._reader is not None:
            reader, self._reader = self._reader, None
            await reader.close()
        if self._usage is not None:
            usage, self._usage = self._usage, None
            await usage.close()

    # --- reads in the broker's hands ---------------------------------------------------------------------------------
    def _release(self, read: int) -> None:
        got = self._slices.pop(read, None)
        if got is not None:
            got.release()

    def _cancel(self, call: int) -> None:
        """The caller has gone: a read that was answered meanwhile is released, one under way lands in the cache."""
        task = self._tasks.get(call)
        if task is not None:
            task.cancel()
        self._release(call)

    # --- the end -----------------------------------------------------------------------------------------------------
    def _closed(self) -> None:
        """The broker is gone: at once, whatever is under way; the catalog names what a copy leaves in the bucket."""
        self._broker.calls.drop_all("the broker is gone")
        self._leave(0)

    def fatal(self, error: BaseException | None) -> None:
        """Nobody expected this: end, the broker starts another tierer."""
        log.critical("the tierer ends on an unexpected error", exc_info=error)
        self._leave(EXIT_FATAL)


def open_catalog(path: Path) -> Catalog:
    """The catalog is a cache of the bucket: a damaged one is kept beside itself, and made again."""
    try:
        return Catalog.open(path)
    except DatabaseDamaged as error:
        kept = set_aside(path)
        log.error("the catalog is damaged; it is made again from the bucket", extra={"why": error, "kept": kept})
        return Catalog.open(path)


async def take_lock(path: Path, wait_ms: int, clock: Clock) -> int:
    """The lock of this state directory, waiting for an older tierer to end. Raises StartRefused after *wait_ms*."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    begun_ms = clock.monotonic_ms()
    while True:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if clock.monotonic_ms() - begun_ms > wait_ms:
                os.close(fd)
                raise StartRefused(f"{path}: another tierer has it since more than {wait_ms} ms: {error}") from error
        else:
            return fd
        await asyncio.sleep(_LOCK_LOOK_S)


def reader_options(options: TiererOptions) -> ReaderOptions:
    remote = options.remote
    return ReaderOptions(
        first_bytes=remote.first_range_bytes,
        range_bytes=remote.range_bytes,
        read_ahead=remote.read_ahead,
        cache_bytes=remote.cache_bytes,
        memory_bytes=remote.memory_bytes,
        threads=remote.read_threads,
    )


async def serve(sock: socket.socket, kind: type[Process]) -> None:
    """Run until the socket closes; the process then ends at once, threads that wait for the network or not."""
    loop = asyncio.get_running_loop()
    process = kind(sock, SystemClock(), PosixDisk(), leave=os._exit)
    loop.set_exception_handler(lambda _, context: _unhandled(process, context))
    await asyncio.Event().wait()


def _unhandled(process: Process, context: dict[str, Any]) -> None:
    error = context.get("exception")
    log.error("unhandled: %s", context.get("message"))
    process.fatal(error if isinstance(error, BaseException) else None)


def main(fd: int, kind: type[Process] = Process) -> None:
    """`python -m tierd.tiering --fd N`. Signals are the broker's business: this process ends with its socket."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sock = socket.socket(fileno=fd)
    sock.setblocking(False)
    asyncio.run(serve(sock, kind))
