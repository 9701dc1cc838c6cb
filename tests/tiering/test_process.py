"""The whole tierer as a process of its own, over a `file:` bucket, with partitions that a real Kafka wrote."""

import asyncio
import os
import signal
import sys
from pathlib import Path
from threading import Event

import boto3
import pytest
from moto.server import ThreadedMotoServer

from kit.folder_tier import FolderTier
from kit.golden import golden
from kit.ports import free_ports
from tierd.base.clock import SystemClock
from tierd.base.errors import RemoteUnavailable, StartRefused
from tierd.base.ids import PartitionId, Uuid
from tierd.config.model import S3, Remote
from tierd.config.topic import TopicSettings
from tierd.remote.owner import Holder
from tierd.remote.view import ClaimState, RemotePartition
from tierd.storage.view import LogSlice, PartitionView
from tierd.tiering.heartbeat import Patience
from tierd.tiering.link import TierLink
from tierd.tiering.options import Identity, TiererOptions
from tierd.tiering.verbs import Outcome, VerbProgress

SETTINGS = TopicSettings(index_interval_bytes=512, local_retention_ms=None)


def identity(directory_id: str = "d" * 22) -> Identity:
    holder = Holder(directory_id=directory_id, machine_id="m", inode=1)
    return Identity(holder=holder, host="here", incarnation=Uuid(os.urandom(16)))


class Daemon:
    """A link, its local tier and a bucket below one directory."""

    def __init__(
        self, root: Path, state: str = "state", remote: Remote | None = None, patience: Patience | None = None
    ) -> None:
        self.root = root
        self.local = FolderTier()
        options = TiererOptions(
            remote=remote or Remote(url=f"file:{root}/bucket"),
            state_dir=root / state,
            silence_ms=2_000,
            lock_wait_ms=1_000,
        )
        self.link = TierLink(options, self.local, SystemClock(), patience=patience)
        self.local.changed = self.link.partition_changed

    async def open(self, who: Identity, *, recover: bool = False):
        return await self.link.open(self.local.views.values(), topics=[], local_epoch=4, identity=who, recover=recover)


async def restarted(link: TierLink) -> None:
    """The tierer that runs now ends, and another one is open."""
    await link._child.gone.wait()
    await link.running.wait()


def content(got: LogSlice) -> bytes:
    data = b"".join(os.pread(span.fd, span.length, span.position) for span in got.spans)
    got.release()
    return data


async def closed_part(link: TierLink, view: PartitionView) -> bytes:
    """Everything below the active segment, read piece by piece."""
    got, offset = b"", view.log_start
    while offset < view.active_base:
        part = await link.read(view.id, offset, max_bytes=100_000, stop=view.active_base, committed=False)
        if not part.length:
            break
        assert part.stop is not None
        offset = part.stop
        got += content(part)
    return got


def test_copies_evicts_and_reads_back(tmp_path: Path) -> None:
    async def run() -> None:
        daemon = Daemon(tmp_path)
        views = [
            daemon.local.adopt(golden("kafka") / "clean" / name, tmp_path / "data", SETTINGS)
            for name in ("codec-none-0", "txn-0", "idempotent-0", "compacted-0")
        ]
        logs = {
            view.id: b"".join((view.directory / f"{one.base:020d}.log").read_bytes() for one in view.closed)
            for view in views
        }
        report = await daemon.open(identity())
        assert report.claim.state is ClaimState.HELD
        assert report.claim.epoch == 5
        assert all(report.remotes[view.id].copied_to is None for view in views)

        seen: list[VerbProgress] = []
        result = await daemon.link.copy(report=seen.append)
        assert (result.outcome, result.left) == (Outcome.DONE, ())
        assert seen
        for view in views:
            remote = daemon.link.remote_partition(view.id)
            assert remote is not None
            assert (remote.start, remote.copied_to) == (view.log_start, view.closed[-1].next_base)
            assert remote.size_bytes == len(logs[view.id])

        evicted = await daemon.link.evict()
        assert evicted.outcome is Outcome.DONE
        assert evicted.segments == sum(len(view.closed) for view in views)
        assert all(not daemon.local.views[view.id].closed for view in views)

        for view in views:
            assert await closed_part(daemon.link, view) == logs[view.id]
            seed = await daemon.link.seed(view.id)
            assert seed.snapshot[:2] == b"\0\1"
            assert seed.leader_epochs.startswith(b"0\n")
        rows = await daemon.link.status()
        assert {row.waiting.reason if row.waiting else None for row in rows.values()} <= {"active", None}
        await daemon.link.close()

    asyncio.run(run())


def test_a_killed_tierer_is_started_again_and_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        daemon = Daemon(tmp_path)
        view = daemon.local.adopt(golden("kafka") / "clean" / "codec-none-0", tmp_path / "data", SETTINGS)
        report = await daemon.open(identity())
        assert daemon.link.pid is not None
        os.kill(daemon.link.pid, signal.SIGKILL)
        await restarted(daemon.link)
        assert daemon.link.restarts == 1
        assert daemon.link.claim == report.claim
        result = await daemon.link.copy()
        assert result.outcome is Outcome.DONE
        remote = daemon.link.remote_partition(view.id)
        assert remote is not None
        assert remote.copied_to == view.closed[-1].next_base
        await daemon.link.close()

    asyncio.run(run())


def test_a_tierer_that_hangs_is_ended_and_another_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        hasty = Patience(every_ms=50, look_ms=50, silent_ms=200, end_ms=10_000)
        daemon = Daemon(tmp_path, patience=hasty)
        view = daemon.local.adopt(golden("kafka") / "clean" / "codec-none-0", tmp_path / "data", SETTINGS)
        report = await daemon.open(identity())
        hanging = daemon.link.pid
        assert hanging is not None
        assert daemon.link.trouble is None
        os.kill(hanging, signal.SIGSTOP)
        copying = asyncio.ensure_future(daemon.link.copy())
        with pytest.raises(RemoteUnavailable):
            await copying
        await restarted(daemon.link)
        assert daemon.link.restarts == 1
        assert daemon.link.pid != hanging
        assert (daemon.link.claim, daemon.link.trouble) == (report.claim, None)
        assert (await daemon.link.copy()).outcome is Outcome.DONE
        remote = daemon.link.remote_partition(view.id)
        assert remote is not None
        assert remote.copied_to == view.closed[-1].next_base
        await daemon.link.close()

    asyncio.run(run())


def test_a_second_start_knows_what_the_first_copied(tmp_path: Path) -> None:
    async def run() -> None:
        first = Daemon(tmp_path)
        view = first.local.adopt(golden("kafka") / "clean" / "codec-none-0", tmp_path / "data", SETTINGS)
        await first.open(identity())
        await first.link.copy()
        await first.link.close()
        for state in ("state", "another"):  # with its catalog, and with the bucket alone
            again = Daemon(tmp_path, state)
            again.local.views[view.id] = view
            report = await again.open(identity())
            assert report.claim.state is ClaimState.HELD
            assert report.remotes[view.id].copied_to == view.closed[-1].next_base
            assert report.remotes[view.id].size_bytes == sum(one.size_bytes for one in view.closed)
            await again.link.close()

    asyncio.run(run())


def test_a_foreign_holder_is_refused_unless_it_recovers(tmp_path: Path) -> None:
    async def run() -> None:
        first = Daemon(tmp_path)
        view = first.local.adopt(golden("kafka") / "clean" / "codec-none-0", tmp_path / "data", SETTINGS)
        await first.open(identity())
        await first.link.copy()

        other = Daemon(tmp_path, "other")
        other.local.views[view.id] = view
        with pytest.raises(StartRefused, match="here"):
            await other.open(identity("x" * 22))
        empty = Daemon(tmp_path, "empty")
        with pytest.raises(StartRefused, match="--recover"):
            await empty.open(identity("y" * 22))

        taker = Daemon(tmp_path, "taker")
        report = await taker.open(identity("y" * 22), recover=True)
        assert report.claim.epoch == 6
        assert report.remotes[view.id].copied_to == view.closed[-1].next_base

        result = await first.link.evict()
        assert result.outcome is Outcome.LOST
        assert first.local.claims[-1].state is ClaimState.LOST
        assert first.local.views[view.id].closed == view.closed
        await first.link.close()
        await taker.link.close()

    asyncio.run(run())


def test_a_silent_bucket_gives_a_pending_claim_that_is_held_later(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    server = ThreadedMotoServer("127.0.0.1", port, verbose=False)
    s3 = S3(endpoint=f"http://127.0.0.1:{port}", region="us-east-1", access_key_id="a", secret_access_key="b")

    async def run() -> None:
        daemon = Daemon(tmp_path, remote=Remote(url="s3://archive/p/", s3=s3, request_timeout_ms=500))
        view = daemon.local.adopt(golden("kafka") / "clean" / "codec-none-0", tmp_path / "data", SETTINGS)
        report = await daemon.open(identity())
        assert (report.claim.state, report.claim.epoch) == (ClaimState.PENDING, 1_005)
        assert report.waiting == (view.id,)
        assert (await daemon.link.copy()).outcome is Outcome.UNAVAILABLE
        rows = await daemon.link.status()
        assert [row.waiting.reason for row in rows.values() if row.waiting] == ["claim"] * len(rows)
        await asyncio.to_thread(server.start)
        await asyncio.to_thread(make_bucket, s3)
        await daemon.local.until(lambda: daemon.link.claim.state is ClaimState.HELD)
        assert daemon.link.claim.epoch == 1_005
        assert daemon.local.claims[-1].state is ClaimState.HELD
        assert (await daemon.link.copy()).outcome is Outcome.DONE
        assert daemon.local.remotes[view.id].copied_to == view.closed[-1].next_base
        await daemon.link.close()
        server.stop()

    asyncio.run(run())


def make_bucket(s3: S3) -> None:
    client = boto3.client(
        "s3",
        endpoint_url=s3.endpoint,
        region_name=s3.region,
        aws_access_key_id=s3.access_key_id,
        aws_secret_access_key=s3.secret_access_key,
    )
    client.create_bucket(Bucket="archive")
    client.close()


_IN_ONE_BREATH = """
import pathlib, socket, sys
from tierd.base.ids import PartitionId, Uuid
from tierd.remote.view import Claim, ClaimState, RemotePartition
from tierd.tiering import messages as m

sock = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))
sock.setblocking(True)
part = PartitionId(Uuid(bytes(16)), 0)
before, behind = (
    RemotePartition(id=part, start=0, copied_to=end, log_start=0, size_bytes=1, leader_epoch=1) for end in (5, 10)
)
while packet := sock.recv(65536):
    asked = m.unpack(packet[1:])
    answers = [m.Done(asked.call)]
    if isinstance(asked, m.Open):
        pending, held = (Claim(state=state, epoch=5) for state in (ClaimState.PENDING, ClaimState.HELD))
        opened = m.Opened(asked.call, pending, (before,), (), (), (), None)
        answers = [m.RemoteChanged(before), opened, m.RemoteChanged(behind), m.ClaimChanged(held)]
    for answer in answers:
        sock.send(bytes(1) + m.pack(answer))
    if isinstance(asked, m.Open):
        pathlib.Path(sys.argv[1]).touch()
"""


def test_what_comes_right_behind_the_answer_of_the_start_is_newer_than_that(tmp_path: Path) -> None:
    """A claim that was pending there would stay so for ever, and partitions that wait for it with it."""
    said = tmp_path / "said"

    class Busy(FolderTier):
        def remote_changed(self, remote: RemotePartition) -> None:
            """The broker's loop is held up until all has been said."""
            while not said.exists():
                Event().wait(0.01)
            super().remote_changed(remote)

    async def run() -> None:
        options = TiererOptions(remote=Remote(url=f"file:{tmp_path}/bucket"), state_dir=tmp_path)
        command = (sys.executable, "-c", _IN_ONE_BREATH, str(said))
        link = TierLink(options, Busy(), SystemClock(), command=command)
        report = await link.open([], topics=[], local_epoch=4, identity=identity())
        assert report.claim.state is ClaimState.PENDING
        assert link.claim.state is ClaimState.HELD
        remote = link.remote_partition(PartitionId(Uuid(bytes(16)), 0))
        assert remote is not None
        assert remote.copied_to == 10
        await link.close()

    asyncio.run(asyncio.wait_for(run(), 60))
