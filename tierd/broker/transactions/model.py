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
        State.EMPTY: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
        State.ONGOING: frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT}),
        State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
        State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
        State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
        State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT}),
    }
)
"""An EndTxn without any partition (TV2) goes straight to PREPARE_*."""


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
    """The id before epochs ran out, so that a retry from there is known."""
    client_version: int = 0
    """2: the client speaks TV2 (epoch raised by every EndTxn, partitions added by Produce)."""
    next_producer_id: int | None = None
    """The id that the end of this transaction switches to, its epochs being used up."""

    @property
    def deciding(self) -> bool:
        """The outcome is durable, markers are being written."""
        return self.state in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def decided(self) -> bool:
        return self.state in _DECIDED

    @property
    def commits(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)
