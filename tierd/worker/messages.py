"""What the broker's process and the worker say to each other. Calls carry a number that their replies repeat."""

from dataclasses import dataclass

from tierd.ipc.calls import Failed
from tierd.ipc.packing import Packing
from tierd.storage.compaction.job import CleanedGroup, CleanJob, CleanReport
from tierd.storage.look import Look, Verdict


@dataclass(frozen=True, slots=True)
class Clean:
    """Clean a partition: GroupReady notices in offset order, then Cleaned or Failed."""

    call: int
    job: CleanJob


@dataclass(frozen=True, slots=True)
class LookAt:
    """Look at the records of the batch that the descriptor beside this holds; answered by Looked or Failed."""

    call: int
    look: Look


@dataclass(frozen=True, slots=True)
class Looked:
    call: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Ping:
    """Whether the worker is alive; answered by Pong at once, whatever its threads do."""

    call: int


@dataclass(frozen=True, slots=True)
class Pong:
    call: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Nobody wants the rest of this call; it is answered by Failed soon."""

    call: int


@dataclass(frozen=True, slots=True)
class GroupReady:
    call: int
    group: CleanedGroup


@dataclass(frozen=True, slots=True)
class Cleaned:
    call: int
    report: CleanReport


Message = Clean | LookAt | Looked | Ping | Pong | Cancel | GroupReady | Cleaned | Failed

_PACKING: Packing[Message] = Packing(Message.__args__)
pack, unpack = _PACKING.pack, _PACKING.unpack
