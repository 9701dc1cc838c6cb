"""Whether a start may have the bucket: by its newest claim, by what lies there, and by what this tierd has itself."""

import logging
from collections.abc import Callable, Iterator

from tierd.base.errors import StartRefused
from tierd.remote import owner
from tierd.remote.archive_id import Archive
from tierd.remote.open import Bucket
from tierd.remote.owner import OwnerClaim
from tierd.tiering.options import OpenRequest

log = logging.getLogger(__name__)

ALIVE_MS = 120_000
"""Somebody whose groups commit, or who copies, writes to the bucket more often."""

_WITH_COPY = (
    "take the archive over from it with `tierd serve --take-over`: then it must not write any more"
    " (a directory that is moved by renaming it on its file system stays itself)"
)
_FOR_AN_IMPORT = (
    "an import goes on with the --state directory that began it, itself and no copy; into a prefix of somebody else"
    " nothing is imported: name another one (--remote)"
)
_WITH_NOTHING = "when that host is lost with its disks, `tierd serve --recover` goes on from the bucket alone"


def check_owner(bucket: Bucket, newest: OwnerClaim | None, request: OpenRequest, server_ms: Callable[[], int]) -> None:
    """Raises StartRefused when another data directory has it, unless it is to be taken over."""
    if newest is None or not owner.is_foreign(newest, request.identity.holder):
        return
    if not request.recover and request.lost_host:
        raise StartRefused(
            f"{bucket.url} is claimed by {newest.describe()}, and a recovery from it has begun here: go on with"
            " `tierd serve --recover`, or remove the state directory to begin anew"
        )
    if request.only_copies:
        raise StartRefused(f"{bucket.url} is claimed by somebody else: {newest.describe()}; {_FOR_AN_IMPORT}")
    if not request.recover:
        raise StartRefused(
            f"{bucket.url} is claimed by another data directory: {newest.describe()}; start that one, or"
            f" {_WITH_COPY if request.views else _WITH_NOTHING}"
        )
    if request.if_silent:
        _refuse_if_alive(bucket, newest, server_ms)
    log.warning("the archive is taken over", extra={"url": bucket.url, "was claimed by": newest.describe()})


def _refuse_if_alive(bucket: Bucket, newest: OwnerClaim, server_ms: Callable[[], int]) -> None:
    """Raises StartRefused when an owner's documents have changed so lately that he may be at work still."""
    written_ms = max((info.modified_ms for info in bucket.store.list(bucket.keys.own_folder)), default=0)
    ago_ms = server_ms() - written_ms
    if ago_ms < ALIVE_MS:
        raise StartRefused(
            f"{bucket.url} was written to {max(0, ago_ms) // 1000} s ago, and is claimed by {newest.describe()}: if"
            f" that host is lost, try again in {ALIVE_MS // 60_000} minutes, or say --recover --take-over; if not,"
            " stop it first"
        )


def check_empty(bucket: Bucket, found: Archive | None, request: OpenRequest) -> None:
    """Raises StartRefused when nothing here knows what lies in the bucket, and nobody said that it is so."""
    if request.lost_host and found is None:
        raise StartRefused(
            f"{bucket.url} holds no archive of tierd: there is nothing to recover; check --remote (`tierd archive` and"
            " `tierd restore` read what a Kafka with Aiven's plugin wrote), or remove the state directory to begin anew"
        )
    if request.views or request.recover or request.lost_host:
        return
    if found is not None or next(topic_folders(bucket), None) is not None:
        raise StartRefused(
            f"{bucket.url} holds an archive and the data directory is empty: check --data and --remote;"
            " when the host that wrote it is lost, `tierd serve --recover` goes on from the bucket alone"
        )


def topic_folders(bucket: Bucket) -> Iterator[str]:
    """Of all topics that have segments."""
    folders = bucket.store.list_folders(bucket.keys.prefix)
    return (folder for folder in folders if bucket.keys.parse_topic_folder(folder) is not None)
