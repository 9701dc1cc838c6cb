"""What broker and tierer say to each other over their socket pair. Each message is idempotent.

Calls carry a number that the Reply repeats; notices carry none. A message is the JSON object
`{"k": <class name>, "b": <fields>}`; `channel` splits what is too long for a packet.
"""

from dataclasses import dataclass

from tierd.base.ids import PartitionId, Uuid
from tierd.ipc.calls import Failed
from tierd.ipc.packing import Packing
from tierd.remote.view import ArchivedTopic, Claim, RemotePartition, RemoteStatus
from tierd.storage.view import AbortedTxn, PartitionView, Seed, TimestampOffset
from tierd.tiering.bucket_messages import BucketMessage
from tierd.tiering.options import OpenRequest, TiererOptions, TopicState
from tierd.tiering.questions import Question
from tierd.tiering.verbs import VerbProgress, VerbResult


# --- calls of the broker ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Configure:
    """First message of a connection; answered by Done when the tierer has its lock and its catalog."""

    call: int
    options: TiererOptions


@dataclass(frozen=True, slots=True)
class Open:
    """Answered by Opened, or by Failed(refused)."""

    call: int
    request: OpenRequest


@dataclass(frozen=True, slots=True)
class OpenArchive:
    """In the place of Open where the bucket is only read; answered by ArchiveOpened, or by Failed."""

    call: int


@dataclass(frozen=True, slots=True)
class NextArchive:
    """Answered by ArchiveNews once there is any."""

    call: int


@dataclass(frozen=True, slots=True)
class Read:
    """Answered by ReadDone with descriptors."""

    call: int
    part: PartitionId
    offset: int
    max_bytes: int
    stop: int
    committed: bool


@dataclass(frozen=True, slots=True)
class ByTime:
    call: int
    part: PartitionId
    timestamp_ms: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class LargestTimestamp:
    call: int
    part: PartitionId
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class GetSeed:
    call: int
    part: PartitionId


@dataclass(frozen=True, slots=True)
class PublishHead:
    """Answered by Done when the head in the bucket is that of the catalog, or by Failed."""

    call: int
    part: PartitionId


@dataclass(frozen=True, slots=True)
class Hold:
    """Answered by Done once no copy of the partition runs and all earlier ones are decided, or by Failed."""

    call: int
    part: PartitionId


@dataclass(frozen=True, slots=True)
class AskWhole:
    """Whether a LIST shows whole copies of all offsets in [start, stop); answered by Whole or Failed."""

    call: int
    part: PartitionId
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Whole:
    call: int
    whole: bool


@dataclass(frozen=True, slots=True)
class GetStatus:
    call: int


@dataclass(frozen=True, slots=True)
class Run:
    """The verb `copy`, `evict` or `rotate`; Progress notices, then Ran. *dry*: only what it would do, with *roll* as if
    the active segments had been closed. `keys`: which are in use."""

    call: int
    verb: str
    wait: bool
    timeout_ms: int | None
    dry: bool
    roll: bool = False


@dataclass(frozen=True, slots=True)
class Ping:
    """Answered by Alive, whatever else is going on."""

    call: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Abandon uploads, close, end. Answered by Done."""

    call: int


# --- notices of the broker -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class PartitionChanged:
    view: PartitionView


@dataclass(frozen=True, slots=True)
class TopicChanged:
    state: TopicState


@dataclass(frozen=True, slots=True)
class Release:
    """The bytes of the read with this number were sent."""

    read: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody waits for this call any more; what it downloads still lands in the cache."""

    call: int


# --- calls of the tierer ---------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class EvictLocal:
    call: int
    part: PartitionId
    local_start: int


@dataclass(frozen=True, slots=True)
class MoveLogStart:
    call: int
    part: PartitionId
    log_start: int


# --- notices of the tierer -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class RemoteChanged:
    remote: RemotePartition


@dataclass(frozen=True, slots=True)
class ClaimChanged:
    claim: Claim


@dataclass(frozen=True, slots=True)
class TopicIsNewer:
    """In the bucket, than what the registry says."""

    topic_id: Uuid
    config: dict[str, str]


@dataclass(frozen=True, slots=True)
class TombstoneWritten:
    topic_id: Uuid


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running verb is."""

    call: int
    progress: VerbProgress


# --- replies ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Done:
    call: int


@dataclass(frozen=True, slots=True)
class Alive:
    """How the tierer finds the bucket; both 0 when all is well, or before it is configured."""

    call: int
    bucket_silent_ms: int
    """Since the first call that got no answer, when none has got one since."""
    oldest_call_ms: int
    """Age of the oldest call under way."""
    paused: bool = False
    """`tierd pause` holds all copies."""


@dataclass(frozen=True, slots=True)
class Opened:
    call: int
    claim: Claim
    remotes: tuple[RemotePartition, ...]
    topics: tuple[TopicState, ...]
    waiting: tuple[PartitionId, ...]
    outside: tuple[PartitionId, ...]
    archive_id: Uuid | None
    claimed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ArchiveOpened:
    """All topics."""

    call: int
    topics: tuple[ArchivedTopic, ...]


@dataclass(frozen=True, slots=True)
class ArchiveNews:
    """Since the last answer: topics that are new or others than before, and ids of those that are gone."""

    call: int
    topics: tuple[ArchivedTopic, ...]
    gone: tuple[Uuid, ...]
    trouble: str | None
    """Why what is shown may be old, in a sentence."""


@dataclass(frozen=True, slots=True)
class SpanOf:
    """Bytes [position, position + length) of the descriptor with this index among those sent along."""

    fd: int
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class ReadDone:
    call: int
    spans: tuple[SpanOf, ...]
    aborted: tuple[AbortedTxn, ...]
    stop: int | None


@dataclass(frozen=True, slots=True)
class TimeFound:
    call: int
    found: TimestampOffset | None


@dataclass(frozen=True, slots=True)
class SeedFound:
    call: int
    seed: Seed


@dataclass(frozen=True, slots=True)
class StatusFound:
    call: int
    rows: tuple[RemoteStatus, ...]


@dataclass(frozen=True, slots=True)
class MovedTo:
    call: int
    offset: int


@dataclass(frozen=True, slots=True)
class Ran:
    call: int
    result: VerbResult


Message = (
    Configure
    | Open
    | OpenArchive
    | NextArchive
    | Read
    | ByTime
    | LargestTimestamp
    | GetSeed
    | PublishHead
    | Hold
    | AskWhole
    | Whole
    | GetStatus
    | Run
    | Ping
    | Stop
    | PartitionChanged
    | TopicChanged
    | Release
    | Cancel
    | EvictLocal
    | MoveLogStart
    | RemoteChanged
    | ClaimChanged
    | TopicIsNewer
    | TombstoneWritten
    | Progress
    | Done
    | Alive
    | Failed
    | Opened
    | ArchiveOpened
    | ArchiveNews
    | ReadDone
    | TimeFound
    | SeedFound
    | StatusFound
    | MovedTo
    | Ran
    | BucketMessage
    | Question
)

_PACKING: Packing[Message] = Packing(Message.__args__)
pack, unpack = _PACKING.pack, _PACKING.unpack
