"""What can go wrong at the bucket: one class per thing the caller does differently.

Every backend maps its own failures to these once (`s3_errors.py`, `file.py`, `memory.py`). Whatever is a
RemoteUnavailable may be tried again later; everything else is an answer.
"""

from tierd.base.errors import Archived, RemoteUnavailable, StartRefused, TierdError

__all__ = [
    "AccessRefused",
    "BucketFull",
    "BucketMissing",
    "ClaimLost",
    "Damaged",
    "EpochTaken",
    "KeyMissing",
    "NotFound",
    "ObjectArchived",
    "PreconditionFailed",
    "RemoteUnavailable",
    "RequestRefused",
    "Throttled",
    "WrongBucket",
]


class NotFound(TierdError):
    """No object has this key (or no upload this id)."""

    def __init__(self, key: str) -> None:
        super().__init__(f"{key}: no such object in the bucket")
        self.key = key


class PreconditionFailed(TierdError):
    """The object is there although it must not be, or its ETag is another: somebody else was first. Read it again."""

    def __init__(self, key: str, detail: str) -> None:
        super().__init__(f"{key}: {detail}")
        self.key = key


class RequestRefused(TierdError):
    """The backend understood the request and will never carry it out as it is; trying again changes nothing."""

    def __init__(self, key: str, code: str, message: str) -> None:
        super().__init__(f"{key}: {code}: {message}")
        self.key = key
        self.code = code


class ObjectArchived(RequestRefused, Archived):
    """The object is in a storage class that has to be thawed before it can be read."""


class Throttled(RemoteUnavailable):
    """The bucket asks for fewer requests; back off for longer."""


class AccessRefused(RemoteUnavailable):
    """Credentials are missing, expired or not allowed this; may heal when they are renewed, so it counts as away."""

    at_once = True
    """False when tries before it may have had an effect."""
    denied = False
    """The bucket knows who asks, and does not allow just this: renewed credentials change nothing."""


class BucketMissing(RemoteUnavailable):
    """The bucket or directory itself is not there; the operator must make it or correct the URL."""

    at_once = True
    """As with AccessRefused."""


class KeyMissing(RemoteUnavailable):
    """The key that a segment is encrypted under is not in the key ring; reading heals when it is added."""


class BucketFull(RemoteUnavailable):
    """No room left in the bucket (`file:` on a full disk); goes on when there is."""


class Damaged(RemoteUnavailable):
    """Bytes changed on the way (checksum or length differ from what was sent or promised); send or fetch them again."""


class ClaimLost(TierdError):
    """A later epoch has written here: this process must not write to the bucket any more (LAYOUT.md, "One writer")."""


class EpochTaken(TierdError):
    """The epoch is claimed by another run: choose a higher one, or refuse to start when its holder is foreign."""

    def __init__(self, epoch: int, detail: str) -> None:
        super().__init__(f"epoch {epoch} is taken: {detail}")
        self.epoch = epoch


class WrongBucket(StartRefused):
    """The bucket's archive id is not the one that this state directory knows."""
