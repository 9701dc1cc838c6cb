"""What the coordinator keeps of one transactional id, and which state may follow which."""

from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from tierd.base.ids import TopicPartition


class State(IntEnum):
    """Values are stored (`__transaction_state`, recorded)."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5


_DECIDED: Final = frozenset({State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
NEXT: Final = MappingProxyType(
    {
        State.EMPTY: frozenset({State.ONGOING, State.PREPARE_ABORT}),
        State.ONGOING: frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT}),
        State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
        State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
        State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
        State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT}),
    }
)
"""An abort without any partition (version 2) goes straight to PREPARE_ABORT."""


def may_become(old: State, new: State) -> bool:
    return new is old or new in NEXT[old]  # repeating a step is a retry, not a fault


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """One transactional id, as stored. Epochs are those that batches carry."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    """Where the transaction wrote, or will; `__consumer_offsets` partitions too."""
    changed_ms: int
    started_ms: int | None = None
    previous_producer_id: int | None = None
    """The producer id of the record before this one: another one just after epochs ran out."""
    client_version: int = 0
    """2: the client speaks version 2 (epoch raised by every end, partitions added by Produce); 0: it does not."""
    next_producer_id: int | None = None
    """The id that the end of this transaction switches to, its epochs being used up."""
    last_epoch: int | None = None
    """The epoch from which its holder came to this one; None when it was given to somebody new. Not stored."""

    @property
    def deciding(self) -> bool:
        """The outcome is durable, markers are being written."""
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def decided(self) -> bool:
        return self.state in _DECIDED

    @property
    def told(self) -> tuple[int, int]:
        """Producer id and epoch that its client goes on with."""
        if self.next_producer_id is not None:
            return self.next_producer_id, 0
        return self.producer_id, self.producer_epoch

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
