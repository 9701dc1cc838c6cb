"""Values of the consumer protocol (KIP-848): what members say, what is kept of a group, what is refused.

All are immutable: a step makes a new state, and what is to be written is the difference between the two.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple

from tierd.base.errors import TierdError
from tierd.base.ids import Uuid
from tierd.broker.groups.model import Protocols
from tierd.wire.errors import ErrorCode

Place = tuple[Uuid, int]
"""Topic id and partition."""
Places = frozenset[Place]
NOTHING: Final[Places] = frozenset()

JOINING, LEAVING, AWAY = 0, -1, -2
"""Member epochs that say so; AWAY is a static member that will be back."""


class Layout(NamedTuple):
    """A topic as it is now."""

    topic_id: Uuid
    partitions: int


Layouts = Callable[[str], Layout | None]
"""Looks a topic up by its name."""

Matching = Callable[[str], frozenset[str]]
"""The topics that match a pattern now."""


class Refused(TierdError):
    """The member may not do that; *code* tells it what to do about it."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class MemberState(IntEnum):
    """How far a member has come towards its target; the values are stored."""

    STABLE = 0
    UNREVOKED = 1
    """It must give up partitions before anything else."""
    UNRELEASED = 2
    """It waits for partitions that others have not given up yet."""


@dataclass(frozen=True, slots=True)
class Classic:
    """What a member says of itself that still speaks the classic protocol, in a group that has come to this one."""

    session_timeout_ms: int
    protocols: Protocols


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """A ConsumerGroupHeartbeat request, or a JoinGroup of the classic protocol. None: not changed since the last."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int | None = None
    topics: frozenset[str] | None = None
    pattern: str | None = None
    """Empty: none any more."""
    assignor: str | None = None
    owned: Places | None = None
    classic: Classic | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    """A member as it is stored."""

    id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    """Those that it names."""
    pattern: str | None = None
    """It reads the topics that match this, too."""
    matched: frozenset[str] | None = None
    """Which those are; None: nobody has looked since a start."""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    """What it may still send when the answer with the new one was lost."""
    state: MemberState = MemberState.STABLE
    assigned: Places = NOTHING
    revoking: Places = NOTHING
    """No longer assigned, but it may still be reading them."""
    since: Mapping[Place, int] = field(default_factory=dict)
    """In which epoch each place that it holds was assigned."""
    classic: Classic | None = None
    """Set while it speaks the classic protocol; its generation is the epoch then."""

    @property
    def reads(self) -> frozenset[str]:
        """The topics that it subscribes to, named or matched."""
        if self.topics and self.matched:
            return self.topics | self.matched
        return self.topics or self.matched or frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerState:
    """A group as it is stored. The assignment lags behind the epoch until the next heartbeat."""

    epoch: int = 0
    topics_hash: int = 0
    """Of the topics that members subscribe to, as they were when the epoch began."""
    assignment_epoch: int = 0
    members: Mapping[str, ConsumerMember] = field(default_factory=dict)
    target: Mapping[str, Places] = field(default_factory=dict)
    """By member id: what it is to read in the end."""

    @property
    def name(self) -> str:
        """Kafka's word for where the group is."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        done = (MemberState.STABLE, self.assignment_epoch)
        return "Stable" if all((m.state, m.epoch) == done for m in self.members.values()) else "Reconciling"

    @property
    def is_classic(self) -> bool:
        """Whether all its members speak the classic protocol: then it is to become a classic group."""
        return bool(self.members) and all(member.classic is not None for member in self.members.values())

    @property
    def topics(self) -> frozenset[str]:
        """What its members subscribe to."""
        return frozenset().union(*(member.reads for member in self.members.values()))

    def by_instance(self, instance_id: str) -> ConsumerMember | None:
        return next((member for member in self.members.values() if member.instance_id == instance_id), None)
