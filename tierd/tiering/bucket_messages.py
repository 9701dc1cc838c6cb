"""What verbs about the bucket ask of the tierer, and its answers; parts of `messages`."""

from dataclasses import dataclass

from tierd.base.ids import PartitionId
from tierd.tiering.gaps import GapRow
from tierd.tiering.pausing import Pause, Paused
from tierd.tiering.sweep import SweepResult


@dataclass(frozen=True, slots=True)
class SweepBucket:
    """The verb `sweep`; answered by Swept. *dry*: only what would go. *purge*: old versions, too."""

    call: int
    dry: bool
    purge: bool = False


@dataclass(frozen=True, slots=True)
class Swept:
    call: int
    result: SweepResult


@dataclass(frozen=True, slots=True)
class LookInto:
    """Somebody found offsets [start, stop) damaged: read these segments, copy again what is. Answered by Looking."""

    call: int
    part: PartitionId
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Looking:
    """How many segments will be read."""

    call: int
    segments: int


@dataclass(frozen=True, slots=True)
class GetGaps:
    """Answered by GapsFound."""

    call: int


@dataclass(frozen=True, slots=True)
class AcceptGap:
    """Accept what is lost in [start, stop), all that the partition has lost without both. Answered by GapsFound."""

    call: int
    topic: str
    partition: int
    start: int | None
    stop: int | None
    who: str
    why: str
    dry: bool


@dataclass(frozen=True, slots=True)
class GapsFound:
    call: int
    gaps: tuple[GapRow, ...]


@dataclass(frozen=True, slots=True)
class KeepGroups:
    """Write a group file. Answered by GroupsKept without one."""

    call: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class GetGroups:
    """Answered by GroupsKept with the newest file, if there is any."""

    call: int


@dataclass(frozen=True, slots=True)
class GroupsKept:
    call: int
    raw: bytes | None


@dataclass(frozen=True, slots=True)
class SetPause:
    """`tierd pause`, or `resume` without one. Answered by PauseSet."""

    call: int
    pause: Pause | None
    dry: bool


@dataclass(frozen=True, slots=True)
class PauseSet:
    call: int
    paused: Paused


BucketMessage = (
    SetPause
    | PauseSet
    | SweepBucket
    | Swept
    | LookInto
    | Looking
    | GetGaps
    | AcceptGap
    | GapsFound
    | KeepGroups
    | GetGroups
    | GroupsKept
)
