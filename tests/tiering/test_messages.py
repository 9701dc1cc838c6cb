"""Messages between the processes: every kind survives, wrong ones are refused, long ones and descriptors arrive."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.folder_tier import view_of
from kit.golden import golden
from tierd.base.errors import CorruptFile, DiskFull, RemoteUnavailable, StartRefused, Usage
from tierd.base.ids import PartitionId, Uuid
from tierd.config.encryption import Encryption
from tierd.config.model import S3, Remote
from tierd.config.topic import TopicSettings
from tierd.ipc.calls import CallFailed, failed, raised
from tierd.ipc.channel import MAX_FDS, Channel, ChannelClosed, pair
from tierd.ipc.codec import BadMessage
from tierd.remote.manifest import EpochStart
from tierd.remote.owner import Holder
from tierd.remote.view import (
    ArchivedPartition,
    ArchivedTopic,
    Claim,
    ClaimState,
    RemotePartition,
    RemoteStatus,
    Waiting,
)
from tierd.storage.retention import Rule, Staying
from tierd.storage.view import AbortedTxn, Seed, SegmentView, TimestampOffset
from tierd.tiering import bucket_messages as b
from tierd.tiering import messages as m
from tierd.tiering import questions as q
from tierd.tiering.gaps import GapRow
from tierd.tiering.options import Identity, OpenRequest, TiererOptions, TopicState
from tierd.tiering.outlook import Outlook, OutlookRow
from tierd.tiering.pausing import Pause, Paused
from tierd.tiering.refusals import RefusedDelete
from tierd.tiering.sweep import SweepResult, SweptRow
from tierd.tiering.usage import StoredRow, UsageRow
from tierd.tiering.verbs import KeyUse, Outcome, VerbProgress, VerbResult, VerbRow
from tierd.tiering.why import Why

PART = PartitionId(Uuid(bytes(range(16))), 7)
CLAIM = Claim(state=ClaimState.HELD, epoch=3, detail="x")
REMOTE = RemotePartition(id=PART, start=1, copied_to=None, log_start=2, size_bytes=3, leader_epoch=4)
TOPIC = TopicState(topic="t", topic_id=PART.topic_id, partitions=2, config={"a": "b"}, created_ms=1, deleted_ms=None)
KEY = KeyUse(key_id="k", file=None, active=True, segments=1, bytes=2)
WAITING = Waiting("pinned", "producer 7")
PARTS = (ArchivedPartition(remote=REMOTE, log_start=1, readable_to=2, log_end=3, epochs=(EpochStart(4, 1),)),)
ARCHIVED = ArchivedTopic(name="t", topic_id=PART.topic_id, created_ms=5, config={"a": "b"}, partitions=PARTS)


BUCKET: list[m.Message] = [
    b.LookInto(3, PART, 4, 5),
    b.Looking(3, 1),
    b.GetGaps(3),
    b.AcceptGap(3, "t", 4, 5, None, "ada@host", "why", False),
    b.GapsFound(3, (GapRow(topic="t", partition=4, start=5, stop=6, accepted=True, why="w", who="ada@host"),)),
    b.KeepGroups(3, b"\0\xff"),
    b.GetGroups(3),
    b.GroupsKept(3, None),
    b.SetPause(3, Pause(since_ms=4, why="x"), True),
    b.PauseSet(3, Paused(before=None, after=Pause(since_ms=4, why=""), segments=5, bytes=6, under_way=7)),
    b.SweepBucket(3, True),
    b.Swept(3, SweepResult(outcome=Outcome.DONE, rows=(SweptRow("orphan", ("a", "b"), 4, "why", True),))),
]


STAYING = Staying(
    SegmentView(base=1, next_base=2, size_bytes=3, largest_timestamp_ms=4, append_ms=5), 6, Rule.SIZE, True
)
GOES = OutlookRow(tier="local", start=1, stop=2, bytes=3, rule="retention.ms", at_ms=None)
OUTLOOK = Outlook(
    part=PART, topic="t", log_start=1, log_start_then=2, log_bytes=3, rows=(GOES,), more=4, staying=STAYING
)
REFUSED = RefusedDelete(where="t-0", objects="1 segment", bytes=1, why="locked", until_ms=None, again_ms=2)
QUESTIONS: list[m.Message] = [
    q.GetOutlook(3, 4, "t"),
    q.OutlookFound(3, "why", (OUTLOOK,)),
    q.GetUsage(3, "2026-12", False),
    q.UsageFound(3, (UsageRow("2026-12", "t", "PutObject", 1, 2, 3),)),
    q.GetStored(3),
    q.StoredFound(3, (StoredRow("t", 1, 2),)),
    q.GetConditions(3),
    q.ConditionsFound(3, ("note",), (REFUSED,)),
    q.GetWhy(3, PART),
    q.WhyFound(3, Why(reason="pinned", detail="x", start=1, stop=2, bytes=3), Why(reason="r", detail="d"), None),
]


def samples() -> list[m.Message]:
    view = view_of(golden("kafka") / "clean" / "txn-0", TopicSettings(retention_ms=5))
    identity = Identity(holder=Holder(directory_id="d", machine_id="m", inode=1), host="h", incarnation=Uuid(b"i" * 16))
    s3 = S3(endpoint="http://x", secret_access_key="s", ca_bundle=Path("/ca"))
    remote = Remote(url="s3://b/p/", s3=s3, encryption=Encryption(key_files=(Path("/a.pem"), Path("/b.pem"))))
    request = OpenRequest(
        views=(view, replace(view, pinned_by="x")),
        topics=(TOPIC,),
        local_epoch=-1,
        identity=identity,
        recover=True,
        claimed=CLAIM,
    )
    return [
        m.Configure(1, TiererOptions(remote=remote, state_dir=Path("/s"))),
        m.Open(2, request),
        m.Read(3, PART, 4, 5, 6, True),
        m.ByTime(3, PART, 4, 5, 6),
        m.LargestTimestamp(3, PART, 4, 5),
        m.GetSeed(3, PART),
        m.PublishHead(3, PART),
        m.Hold(3, PART),
        m.AskWhole(3, PART, 5, 7),
        m.Whole(3, True),
        m.GetStatus(3),
        m.Run(3, "copy", True, None, False),
        m.Ping(3),
        m.Alive(3, 4, 5),
        m.Stop(3),
        m.PartitionChanged(view),
        m.TopicChanged(TOPIC),
        m.Release(3),
        m.Cancel(3),
        m.EvictLocal(3, PART, 4),
        m.MoveLogStart(3, PART, 4),
        m.RemoteChanged(REMOTE),
        m.ClaimChanged(CLAIM),
        m.TopicIsNewer(PART.topic_id, {"a": "b"}),
        m.TombstoneWritten(PART.topic_id),
        m.Progress(3, VerbProgress(1, 2, 3, 4)),
        m.Done(3),
        m.Failed(3, "CorruptFile", "why", "where", 9),
        m.Opened(3, CLAIM, (REMOTE,), (TOPIC,), (PART,), (PART,), PART.topic_id, 5),
        m.ReadDone(3, (m.SpanOf(0, 1, 2),), (AbortedTxn(1, 2),), None),
        m.TimeFound(3, TimestampOffset(1, 2, None)),
        m.TimeFound(3, None),
        m.SeedFound(3, Seed(b"\0\xff", b"0\n0\n")),
        m.StatusFound(3, (RemoteStatus(remote=REMOTE, oldest_uncopied_ms=None, waiting=WAITING),)),
        m.MovedTo(3, 4),
        m.Ran(3, VerbResult(outcome=Outcome.PINNED, left=(VerbRow(PART, "t", 4, WAITING),), keys=(KEY,))),
        m.OpenArchive(3),
        m.NextArchive(3),
        m.ArchiveOpened(3, (ARCHIVED,)),
        m.ArchiveNews(3, (ARCHIVED,), (PART.topic_id,), "why"),
    ]


def test_every_kind_comes_back_as_it_was() -> None:
    made = samples() + BUCKET + QUESTIONS
    assert {type(one) for one in made} == set(m.Message.__args__)
    for message in made:
        assert m.unpack(m.pack(message)) == message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b'{"k":"Nothing","b":{}}',
        b'{"k":"Done","b":{}}',
        b'{"k":"Done","b":{"call":"1"}}',
        b'{"k":"Done","b":{"call":1,"more":2}}',
        b'{"k":"Done","b":7}',
        b'{"k":"TombstoneWritten","b":{"topic_id":"short"}}',
        b'{"k":"ClaimChanged","b":{"claim":{"state":"maybe","epoch":1,"detail":""}}}',
    ],
)
def test_what_is_not_a_message_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        m.unpack(raw)


@given(st.binary(max_size=200))
def test_garbage_is_refused(raw: bytes) -> None:
    with pytest.raises(BadMessage):
        m.unpack(raw)


def test_errors_cross_as_the_class_that_the_caller_handles() -> None:
    class Throttled(RemoteUnavailable):
        """A subclass that this side does not know."""

    for error in (RemoteUnavailable("a"), StartRefused("b"), DiskFull("c"), Usage("d")):
        back = raised(failed(1, error))
        assert (type(back), str(back)) == (type(error), str(error))
    assert type(raised(failed(1, Throttled("slow")))) is RemoteUnavailable
    corrupt = raised(failed(1, CorruptFile("f", 5, "bad")))
    assert isinstance(corrupt, CorruptFile)
    assert (corrupt.where, corrupt.position, corrupt.reason) == ("f", 5, "bad")
    assert isinstance(raised(failed(1, PermissionError("no"))), CallFailed)


class End:
    """One end of a channel that keeps what arrives."""

    def __init__(self) -> None:
        self.got: list[tuple[bytes, list[int]]] = []
        self.arrived = asyncio.Event()
        self.closed = asyncio.Event()

    def message(self, body: bytes, fds: list[int]) -> None:
        self.got.append((body, fds))
        self.arrived.set()

    async def wait_for(self, count: int) -> None:
        while len(self.got) < count:
            self.arrived.clear()
            await self.arrived.wait()


def test_long_messages_and_descriptors_arrive_in_order(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"content")

    async def run() -> None:
        ours, theirs = pair()
        near, far = End(), End()
        sender = Channel(ours, near.message, near.closed.set)
        receiver = Channel(theirs, far.message, far.closed.set)
        fd = os.open(tmp_path / "f", os.O_RDONLY)
        bodies = [b"", b"x", os.urandom(65_535), os.urandom(65_536), os.urandom(3_000_000), b"last"]
        for number, body in enumerate(bodies):
            sender.send(body, [fd] * number)
        await far.wait_for(len(bodies))
        assert [body for body, _ in far.got] == bodies
        assert [len(fds) for _, fds in far.got] == list(range(len(bodies)))
        received = [one for _, fds in far.got for one in fds]
        assert all(os.pread(one, 10, 0) == b"content" for one in received)
        for one in [fd, *received]:
            os.close(one)
        with pytest.raises(ValueError, match="descriptors"):
            sender.send(b"", [0] * (MAX_FDS + 1))
        receiver.close()
        await near.closed.wait()
        with pytest.raises(ChannelClosed):
            sender.send(b"nobody")

    asyncio.run(run())
