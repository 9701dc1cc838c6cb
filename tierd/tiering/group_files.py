"""The group files of a bucket: written as the broker hands them over, thinned out, and read back. Blocking.

Kept are the newest few and one of each of the last hours, by the bucket's clock.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.remote import crc
from tierd.remote.documents import NewerFormat
from tierd.remote.errors import NotFound
from tierd.remote.groups import parse_groups
from tierd.remote.keys import GroupsKey
from tierd.remote.open import Bucket

log = logging.getLogger(__name__)

NEWEST, HOURS = 10, 48
_HOUR_MS = 3_600_000
_AT_A_TIME = 20
"""So many more than are kept, and the others are deleted."""


@dataclass(frozen=True, slots=True, order=True)
class Written:
    """A file, by age."""

    epoch: int
    sequence: int
    written_ms: int
    """By the bucket's clock."""


def superfluous(files: Iterable[Written], now_ms: int) -> list[Written]:
    """Neither among the newest nor the last one of an hour that is kept."""
    newest_first = sorted(files, reverse=True)
    kept, hours = set(newest_first[:NEWEST]), set[int]()
    for file in newest_first:
        hour = file.written_ms // _HOUR_MS
        if hour not in hours and now_ms - file.written_ms <= HOURS * _HOUR_MS:
            hours.add(hour)
            kept.add(file)
    return [file for file in newest_first if file not in kept]


class GroupFiles:
    """One caller at a time."""

    def __init__(self, bucket: Bucket, now_ms: Callable[[], int]) -> None:
        self._bucket = bucket
        self._now_ms = now_ms
        self._known: list[Written] | None = None

    def keep(self, raw: bytes, epoch: int) -> None:
        """Write the next file of the run with *epoch*, and delete what is too many. The caller has just asked whose
        the bucket is. Raises PreconditionFailed, RemoteUnavailable."""
        known = self._listed()
        sequence = max((file.sequence for file in known if file.epoch == epoch), default=-1) + 1
        key = self._bucket.keys.groups(epoch, sequence)
        self._bucket.store.put(key, raw, crc32c=crc.crc32c(raw), if_none_match=True)
        known.append(Written(epoch, sequence, self._now_ms()))
        gone = superfluous(known, self._now_ms())
        if len(gone) >= _AT_A_TIME:
            self._delete(gone)

    def _listed(self) -> list[Written]:
        if self._known is None:
            self._known = list_groups(self._bucket)
        return self._known

    def _delete(self, gone: Sequence[Written]) -> None:
        keys = [self._bucket.keys.groups(file.epoch, file.sequence) for file in gone]
        refused = [outcome for outcome in self._bucket.store.delete(keys) if outcome.refused is not None]
        if refused:
            log.warning("group files stay: %s", refused[0].refused, extra={"files": len(refused)})
        self._known = [file for file in self._known or () if file not in gone]


def list_groups(bucket: Bucket) -> list[Written]:
    """All that are there, the oldest first."""
    listed = ((bucket.keys.parse(info.key), info) for info in bucket.store.list(bucket.keys.groups_folder))
    return sorted(Written(key.epoch, key.sequence, info.modified_ms) for key, info in listed if type(key) is GroupsKey)


def newest_groups(bucket: Bucket) -> bytes | None:
    """The newest file that is whole; None when there is none. Raises NewerFormat, RemoteUnavailable."""
    for file in reversed(list_groups(bucket)):
        key = bucket.keys.groups(file.epoch, file.sequence)
        try:
            raw = bucket.store.get(key)
            parse_groups(raw, key)
        except NotFound:
            continue
        except NewerFormat:
            raise
        except CorruptFile as error:
            log.error("a group file does not parse, an older one is taken: %s", error)
        else:
            return raw
    return None
