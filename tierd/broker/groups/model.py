"""Values of the group protocol: what comes into the state machine (`machine`) and what comes out of it.

Times are monotonic milliseconds unless a name says otherwise. Rules: Kafka's classic protocol, KIP-62 (rebalance
time-out), KIP-345 (static members), KIP-394 (member id before joining), KIP-814 (leader may skip its assignment).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from tierd.wire.errors import ErrorCode

Ticket = object
"""Stands for one waiting request; the machine keeps it and gives it back with the answer."""


class State(Enum):
    """Where a group is."""

    EMPTY = "Empty"
    """No members; offsets may be there."""
    PREPARING = "PreparingRebalance"
    """Members are asked to join again."""
    COMPLETING = "CompletingRebalance"
    """All have joined; the leader has not yet said who reads what."""
    STABLE = "Stable"
    DEAD = "Dead"
    """Removed; nothing happens any more."""


NEXT: Final[Mapping[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING, State.DEAD}),
    State.PREPARING: frozenset({State.COMPLETING, State.EMPTY, State.DEAD}),
    State.COMPLETING: frozenset({State.STABLE, State.PREPARING, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING, State.DEAD}),
    State.DEAD: frozenset(),
}

Protocols = tuple[tuple[str, bytes], ...]
"""(name, the client's metadata for it), the client's favourite first."""


@dataclass(slots=True)
class Member:
    """One member; changed only by the machine."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    deadline_ms: int = 0
    """When it is taken for dead unless it is heard of."""
    is_new: bool = True
    """Its first join has not been answered."""
    gone: bool = False
    """It has joined, but its connection ended before the answer: nobody waits for it."""
    join: Ticket | None = None
    sync: Ticket | None = None

    def metadata(self, protocol: str) -> bytes:
        """What the client said about *protocol*; empty when it does not speak it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """A JoinGroup request."""

    ticket: Ticket
    member_id: str
    """Empty: not a member yet."""
    fresh_id: str
    """The id it gets if it needs one."""
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols
    id_required: bool = True
    """From version 4 on a new member first gets its id and then joins with it."""
    knows_skip: bool = True
    """From version 9 on a leader can be told that the assignment stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sync:
    """A SyncGroup request."""

    ticket: Ticket
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: Mapping[str, bytes]
    """By member id; only the leader sends them."""

    @property
    def assigned_bytes(self) -> int:
        return sum(len(member_id) + len(work) for member_id, work in self.assignments.items())


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A member as the leader is told of it."""

    id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    error: ErrorCode = ErrorCode.NONE
    generation: int | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()
    """For the leader only."""
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the request behind *ticket*."""

    ticket: Ticket
    answer: JoinAnswer | SyncAnswer


@dataclass(frozen=True, slots=True)
class StoredMember:
    """A member as it is written to `__consumer_offsets`."""

    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class StoredGroup:
    """A group as it is written to `__consumer_offsets`."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    members: tuple[StoredMember, ...] = ()
    changed_ms: int | None = None
    """Wall clock of the change; filled in by whoever writes it."""


@dataclass(frozen=True, slots=True)
class Persist:
    """Write the group before any later action of the same list is done."""

    group: StoredGroup


Action = Reply | Persist


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """What groups may do and take. Defaults are Kafka's but for the delay; it does not bound the memory."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_delay_ms: int = 0
    """How long the first member of an empty group waits for others. Kafka: 3000, and 0 in its own quick start."""
    new_member_join_timeout_ms: int = 300_000
    """A new member whose join is not answered for so long is forgotten."""
    max_size: int = 2**31 - 1
    """Members of one group."""
    consumer_session_ms: int = 45_000
    """A member of the consumer protocol that is silent for so long is sent away."""
    consumer_heartbeat_ms: int = 5_000
    """How often it is told to send heartbeats."""
    consumer_max_size: int = 2**31 - 1
    offset_metadata: int = 4096
    """Characters that may go with one committed offset."""
    memory_bytes: int = 256 << 20
    """Of all groups, their members and their offsets, as `weight` counts it."""


@dataclass(slots=True)
class Gathering:
    """The first rebalance of an empty group waits in steps while new members still arrive."""

    step_ms: int
    remaining_ms: int
    someone_came: bool = field(default=False)
