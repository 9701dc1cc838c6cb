"""Exit codes of every verb, and which error gives which; the one place that says so."""

from enum import IntEnum

from tierd.base.errors import RemoteUnavailable, StartRefused, TierdError, Usage


class Exit(IntEnum):
    """Scripts depend on these numbers."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    """Wrong arguments or settings."""
    PINNED = 3
    """Something stays that may not be copied yet."""
    REFUSED = 4
    """Start refused: lock, foreign claim, wrong bucket."""
    BUCKET_SILENT = 5
    """The bucket does not answer."""


_BY_ERROR: tuple[tuple[type[TierdError], Exit], ...] = (
    (Usage, Exit.USAGE),
    (StartRefused, Exit.REFUSED),
    (RemoteUnavailable, Exit.BUCKET_SILENT),
)


def exit_of(error: TierdError) -> Exit:
    return next((code for kind, code in _BY_ERROR if isinstance(error, kind)), Exit.FAILED)
