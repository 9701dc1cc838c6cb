"""The life of a remote segment, as a table: Kafka's. All transitions lie here.

    COPY_STARTED -> COPY_FINISHED -> DELETE_STARTED -> DELETE_FINISHED
         `------------------------------^

Readable in COPY_FINISHED alone. DELETE_FINISHED is the row's absence in the catalog.
"""

from enum import IntEnum

from tierd.base.errors import TierdError


class CopyState(IntEnum):
    """Stored in the catalog and numbered as Kafka numbers them: do not change."""

    COPY_STARTED = 0
    COPY_FINISHED = 1
    DELETE_STARTED = 2
    DELETE_FINISHED = 3


NEXT: dict[CopyState, frozenset[CopyState]] = {
    CopyState.COPY_STARTED: frozenset({CopyState.COPY_FINISHED, CopyState.DELETE_STARTED}),
    CopyState.COPY_FINISHED: frozenset({CopyState.DELETE_STARTED}),
    CopyState.DELETE_STARTED: frozenset({CopyState.DELETE_FINISHED}),
    CopyState.DELETE_FINISHED: frozenset(),
}


class IllegalTransition(TierdError):
    """A step that the life of a segment does not know; a bug of ours, and the catalog stays as it was."""

    def __init__(self, what: str, old: CopyState, new: CopyState) -> None:
        super().__init__(f"{what}: {old.name} cannot become {new.name}")
        self.old = old
        self.new = new


def may_become(old: CopyState, new: CopyState) -> bool:
    return new is old or new in NEXT[old]  # repeating a step is a retry, not a fault


def check(what: str, old: CopyState, new: CopyState) -> None:
    """Raise IllegalTransition unless *old* may become *new*."""
    if not may_become(old, new):
        raise IllegalTransition(what, old, new)
