"""The root of tierd's errors, and those that every room shares.

One class per thing the caller does differently; facts are attributes; the text says what, where and
what to do next. OSError and HTTP statuses are mapped once, at the seam that met them.
"""


class TierdError(Exception):
    """Root of every error that tierd raises on purpose; anything else is a bug."""


class CorruptFile(TierdError):
    """Bytes on disk or in the bucket do not parse; never retried."""

    def __init__(self, where: str, position: int, reason: str) -> None:
        super().__init__(f"{where}: byte {position}: {reason}")
        self.where = where
        self.position = position
        self.reason = reason


class StartRefused(TierdError):
    """The daemon must not start (lock, foreign claim, wrong bucket); exit code 4."""


class RemoteUnavailable(TierdError):
    """The bucket did not answer in time; safe to retry. Exit code 5 where a verb needed it."""


class Archived(TierdError):
    """What was asked for lies in a storage class that has to be thawed first (`tierd restore --thaw`): hours."""


class WorkerGone(TierdError):
    """The process that did the work ended; nothing was half done, it may be asked for again."""


class DiskFull(TierdError):
    """No room (or less than the reserve) on a local disk; served again when space is back."""


class Usage(TierdError):
    """The caller's arguments or settings are wrong; exit code 2."""
