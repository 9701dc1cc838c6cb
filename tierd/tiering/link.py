"""The broker's end: starts the tierer, starts it again with back-off, and is the broker's RemoteTier.

Nothing is lost when the tierer dies: the views and topics are kept (`told`) and told anew, calls under way raise
RemoteUnavailable, descriptors in the broker's hands stay good. Loop thread only.
"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from typing import Any

from tierd.base.clock import Clock
from tierd.base.errors import RemoteUnavailable, StartRefused, TierdError
from tierd.base.ids import PartitionId, Uuid
from tierd.ipc.calls import Calls, failed
from tierd.ipc.channel import ChannelClosed
from tierd.ipc.child import STOP_S, Child
from tierd.remote.view import Claim, RemotePartition, RemoteStatus
from tierd.storage.view import FileSpan, LogSlice, PartitionView, Seed, TimestampOffset
from tierd.tiering import messages as m
from tierd.tiering.heartbeat import Heartbeat, Patience
from tierd.tiering.options import Identity, OpenReport, OpenRequest, TiererOptions, TopicState
from tierd.tiering.ports import LocalTier
from tierd.tiering.state import UNCLAIMED
from tierd.tiering.told import Told
from tierd.tiering.verbs import KeyUse, VerbProgress, VerbResult

log = logging.getLogger(__name__)

COMMAND = (sys.executable, "-P", "-m", "tierd.tiering")
Report = Callable[[VerbProgress], None]


def _no_report(progress: VerbProgress) -> None:
    """Nobody looks."""


class TierLink:
    """`open` starts the first tierer; from then on one is kept running until `close`."""

    def __init__(
        self,
        options: TiererOptions,
        local: LocalTier,
        clock: Clock,
        *,
        command: Sequence[str] = COMMAND,
        patience: Patience | None = None,
    ) -> None:
        self._options = options
        self._local = local
        self._calls = Calls(m.pack)
        self._child = Child("the tierer", command, clock, self._message, self._closed)
        self.running = asyncio.Event()
        """Set while a tierer is open."""
        self.heart = Heartbeat(lambda: self._ask(m.Ping), self._child.kill, patience or Patience())
        self._beating: asyncio.Task[None] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._claim = UNCLAIMED
        self._request: OpenRequest | None = None
        self._told = Told(self.running.is_set, self._tell)
        self._remotes: dict[PartitionId, RemotePartition] = {}
        self._reports: dict[int, Report] = {}
        self.restarts = 0

    # --- life --------------------------------------------------------------------------------------------------------
    async def open(
        self,
        views: Iterable[PartitionView],
        *,
        topics: Iterable[TopicState],
        local_epoch: int,
        identity: Identity,
        recover: bool = False,
        registry_epoch: int | None = None,
        archive_id: Uuid | None = None,
        offline: Iterable[PartitionId] = (),
        lost_host: bool = False,
        if_silent: bool = False,
    ) -> OpenReport:
        """Start the tierer and claim the bucket. *local_epoch*: largest of the local checkpoints, -1 without any.
        *offline*: partitions that this run does not append to.

        Raises StartRefused. Views are those of recovered logs; `log_end` is what recovery found.
        """
        self._told.begin(views, topics)
        self._request = OpenRequest(
            views=(),
            topics=(),
            local_epoch=local_epoch,
            identity=identity,
            recover=recover,
            claimed=None,
            registry_epoch=registry_epoch,
            archive_id=archive_id,
            offline=tuple(offline),
            lost_host=lost_host,
            if_silent=if_silent,
        )
        self._beating = asyncio.ensure_future(self.heart.run())
        opened = await self._start_first(self._request)
        self._keeper = asyncio.ensure_future(self._child.keep(self._restart))
        return OpenReport(
            claim=opened.claim,
            remotes={remote.id: remote for remote in opened.remotes},
            topics=opened.topics,
            waiting=opened.waiting,
            outside=opened.outside,
            archive_id=opened.archive_id,
            claimed_ms=opened.claimed_ms,
        )

    async def _start_first(self, request: OpenRequest) -> m.Opened:
        try:
            return await self._start(request)
        except RemoteUnavailable as error:
            alive = not self._child.gone.is_set()
            await self.close()
            if alive:
                raise
            raise StartRefused(f"the tierer ended while it started: {error}") from error
        except TierdError:
            await self.close()
            raise

    async def _start(self, request: OpenRequest) -> m.Opened:
        """One tierer process, configured and opened."""
        views, topics = self._told.all_of_it()
        request = replace(request, views=views, topics=topics)
        await self._child.start()
        await self._ask(lambda n: m.Configure(n, self._options))
        opened: m.Opened = await self._ask(lambda n: m.Open(n, request))
        self.running.set()
        self._told.catch_up()
        return opened

    def _take(self, opened: m.Opened) -> None:
        self._claim = opened.claim
        self._told.bucket_says(opened.topics)
        self._remotes = {remote.id: remote for remote in opened.remotes}

    async def _restart(self) -> None:
        assert self._request is not None
        self.restarts += 1
        before, known = self._claim, self._remotes
        try:
            await self._start(replace(self._request, claimed=before))
        except (TierdError, OSError) as error:
            log.error("the tierer did not start: %s", error)
            self._child.let_go()
            return
        if self._claim != before:
            self._local.claim_changed(self._claim)
        for part, remote in self._remotes.items():
            if known.get(part) != remote:
                self._local.remote_changed(remote)

    async def close(self) -> None:
        """Stop the tierer: uploads are given up, nothing waits for the bucket; a few seconds at most."""
        for task in (self._keeper, self._beating):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if not self._child.gone.is_set():
            try:
                async with asyncio.timeout(STOP_S):
                    await self._ask(m.Stop)
            except (TimeoutError, TierdError) as error:
                log.warning("the tierer did not stop in time: %s", str(error) or f"no answer within {STOP_S:.0f} s")
            self._child.let_go()
        await self._child.reap()
        for task in self._tasks:
            task.cancel()

    def _closed(self) -> None:
        self.running.clear()
        self._calls.drop_all("the tierer is gone")

    @property
    def pid(self) -> int | None:
        """Of the tierer that runs now."""
        return self._child.pid

    @property
    def ready(self) -> bool:
        """False while no tierer is open."""
        return self.running.is_set()

    @property
    def trouble(self) -> str | None:
        """What is wrong with tierer or bucket, in a sentence; None when nothing is known to be."""
        return self.heart.trouble if self.ready else "the tierer is being started again"

    # --- messages of the tierer --------------------------------------------------------------------------------------
    def _message(self, body: bytes, fds: list[int]) -> None:
        message = m.unpack(body)
        match message:
            case m.EvictLocal():
                self._serve(message.call, self._local.evict(message.part, message.local_start))
            case m.MoveLogStart():
                self._serve(message.call, self._local.move_log_start(message.part, message.log_start))
            case m.RemoteChanged():
                self._remotes[message.remote.id] = message.remote
                self._local.remote_changed(message.remote)
            case m.ClaimChanged():
                self._claim = message.claim
                if self.ready:  # else the answer to Open says it
                    self._local.claim_changed(message.claim)
            case m.TopicIsNewer() | m.TombstoneWritten():
                self._take_topic(message)
            case m.Progress():
                self._reports.get(message.call, _no_report)(message.progress)
            case _:
                self._reply(message, fds)

    def _reply(self, message: Any, fds: Sequence[int]) -> None:
        if isinstance(message, m.Opened):  # at once: what comes behind it in the same breath is newer
            self._take(message)
        if not self._calls.reply(message, list(fds)):
            for fd in fds:
                os.close(fd)

    def _take_topic(self, message: m.TopicIsNewer | m.TombstoneWritten) -> None:
        if isinstance(message, m.TombstoneWritten):
            self._told.forget_topic(message.topic_id)
            self._local.tombstone_written(message.topic_id)
        else:
            self._told.bucket_has(message.topic_id, message.config)
            self._local.topic_is_newer(message.topic_id, message.config)

    def _serve(self, call: int, work: Coroutine[Any, Any, int]) -> None:
        task = asyncio.ensure_future(self._answer(call, work))
        self._tasks.add(task)
        task.add_done_callback(self._served)

    async def _answer(self, call: int, work: Coroutine[Any, Any, int]) -> None:
        reply: m.Message
        try:
            reply = m.MovedTo(call, await work)
        except (TierdError, OSError) as error:
            reply = failed(call, error)
        self._tell(reply)

    def _served(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    def _tell(self, message: m.Message) -> None:
        """Send unless the tierer is gone; whoever starts next is told the whole state anyway."""
        if not self._child.tell(m.pack(message)):
            log.debug("a notice has nobody to go to")

    async def _ask(self, make: Callable[[int], m.Message]) -> Any:
        reply, _ = await self._ask_fds(make)
        return reply

    async def _ask_fds(self, make: Callable[[int], m.Message]) -> tuple[Any, list[int]]:
        channel = self._child.channel
        if channel is None:
            raise RemoteUnavailable("the tierer is not running")
        try:
            return await self._calls.ask(channel, make, lambda call: self._tell(m.Cancel(call)))
        except ChannelClosed as error:
            raise RemoteUnavailable("the tierer is not running") from error

    def _must_be_ready(self) -> None:
        if not self.ready:
            raise RemoteUnavailable("the tierer is being started")

    def _must_answer(self) -> None:
        self._must_be_ready()
        if self.heart.silence is not None:
            raise RemoteUnavailable(self.heart.silence)

    # --- RemoteTier --------------------------------------------------------------------------------------------------
    @property
    def claim(self) -> Claim:
        return self._claim

    def remote_partition(self, part: PartitionId) -> RemotePartition | None:
        return self._remotes.get(part)

    async def read(self, part: PartitionId, offset: int, *, max_bytes: int, stop: int, committed: bool) -> LogSlice:
        """See `broker.ports.RemoteTier.read`; the slice owns its descriptors until `release`."""
        self._must_be_ready()
        reply, fds = await self._ask_fds(lambda n: m.Read(n, part, offset, max_bytes, stop, committed))
        channel = self._child.channel

        def release() -> None:
            for fd in fds:
                os.close(fd)
            if self._child.channel is channel:  # a tierer that was started since knows nothing of this read
                self._tell(m.Release(reply.call))

        if any(span.fd >= len(fds) for span in reply.spans):  # the kernel leaves out those that find no place here
            release()
            raise RemoteUnavailable("this process may have no more files open")
        spans = tuple(FileSpan(fds[span.fd], span.position, span.length) for span in reply.spans)
        return LogSlice(spans, sum(span.length for span in spans), reply.aborted, reply.stop, release)

    async def by_time(self, part: PartitionId, timestamp_ms: int, *, start: int, stop: int) -> TimestampOffset | None:
        return await self._time(lambda n: m.ByTime(n, part, timestamp_ms, start, stop))

    async def largest_timestamp(self, part: PartitionId, *, start: int, stop: int) -> TimestampOffset | None:
        return await self._time(lambda n: m.LargestTimestamp(n, part, start, stop))

    async def _time(self, make: Callable[[int], m.Message]) -> TimestampOffset | None:
        self._must_answer()
        found: TimestampOffset | None = (await self._ask(make)).found
        return found

    async def seed(self, part: PartitionId) -> Seed:
        self._must_be_ready()
        seed: Seed = (await self._ask(lambda n: m.GetSeed(n, part))).seed
        return seed

    async def publish_head(self, part: PartitionId) -> None:
        self._must_be_ready()
        await self._ask(lambda n: m.PublishHead(n, part))

    async def hold_copies(self, part: PartitionId) -> RemotePartition | None:
        self._must_be_ready()
        await self._ask(lambda n: m.Hold(n, part))
        return self._remotes.get(part)

    async def whole(self, part: PartitionId, start: int, stop: int) -> bool:
        self._must_answer()
        whole: bool = (await self._ask(lambda n: m.AskWhole(n, part, start, stop))).whole
        return whole

    async def status(self) -> dict[PartitionId, RemoteStatus]:
        self._must_answer()
        reply = await self._ask(m.GetStatus)
        return {row.remote.id: row for row in reply.rows}

    def partition_changed(self, view: PartitionView) -> None:
        self._told.partition_changed(view)

    def topic_changed(
        self, topic: str, topic_id: Uuid, partitions: int, config: dict[str, str], created_ms: int
    ) -> None:
        self._told.topic_changed(
            TopicState(topic=topic, topic_id=topic_id, partitions=partitions, config=config, created_ms=created_ms)
        )

    def topic_deleted(self, topic: str, topic_id: Uuid, partitions: int, deleted_ms: int) -> None:
        self._told.topic_deleted(topic, topic_id, partitions, deleted_ms)

    # --- verbs -------------------------------------------------------------------------------------------------------
    async def copy(
        self, *, wait: bool = True, timeout_ms: int | None = None, report: Report = _no_report
    ) -> VerbResult:
        """`tierd copy`; roll and flush first, and tell the views, when `--roll` asks for it."""
        return await self._run("copy", wait, timeout_ms, report)

    async def plan(self, verb: str, *, roll: bool = False) -> VerbResult:
        """What a verb would do now; *roll*: as if active segments were closed, as the views last told."""
        return await self._run(verb, False, None, _no_report, dry=True, roll=roll)

    async def rotate_keys(self, *, report: Report = _no_report) -> VerbResult:
        """`tierd keys rotate`."""
        return await self._run("rotate", True, None, report)

    async def keys(self) -> tuple[KeyUse, ...]:
        """`tierd keys list`."""
        return (await self._run("keys", True, None, _no_report)).keys

    async def evict(self, *, report: Report = _no_report) -> VerbResult:
        """`tierd evict`."""
        return await self._run("evict", True, None, report)

    async def call(self, make: Callable[[int], m.Message]) -> Any:
        """The reply to another call of a verb. Raises RemoteUnavailable, and what the tierer says."""
        self._must_be_ready()
        return await self._ask(make)

    async def _run(
        self, verb: str, wait: bool, timeout_ms: int | None, report: Report, *, dry: bool = False, roll: bool = False
    ) -> VerbResult:
        self._must_be_ready()
        numbers: list[int] = []

        def make(number: int) -> m.Message:
            numbers.append(number)
            self._reports[number] = report
            return m.Run(number, verb, wait, timeout_ms, dry, roll)

        try:
            reply = await self._ask(make)
        finally:
            for number in numbers:
                self._reports.pop(number, None)
        result: VerbResult = reply.result
        return result
