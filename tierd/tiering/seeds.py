"""What a log that begins anew at the copied end has to remember: producers and leader epochs, out of the bucket."""

import logging
from collections.abc import Sequence

from tierd.base.errors import CorruptFile
from tierd.remote.body import body_of
from tierd.remote.errors import NotFound, RequestRefused
from tierd.remote.manifest import parse_manifest
from tierd.remote.open import Bucket
from tierd.storage.epochs import EpochEntry, encode_epochs, parse_epochs
from tierd.storage.snapshot import encode_snapshot, parse_snapshot
from tierd.storage.view import Seed
from tierd.tiering.segments import RemoteSegment

log = logging.getLogger(__name__)


def seed_of(bucket: Bucket, segments: Sequence[RemoteSegment]) -> Seed:
    """At the end of *segments*, all that are committed of a partition, ascending: from the last one that has objects.
    Where these are lost or damaged the producers are, and old ones are new ones, as in Kafka. Blocking.

    Raises RemoteUnavailable; KeyMissing, which is one, too.
    """
    with_objects = [segment for segment in segments if segment.size_bytes]
    if not with_objects:
        return Seed(snapshot=encode_snapshot([]), leader_epochs=encode_epochs([]))
    last = with_objects[-1]
    try:
        return read_seed(bucket, last)
    except (NotFound, RequestRefused, CorruptFile) as error:
        facts = {"topic": last.topic, "partition": last.part.partition, "why": str(error)}
        log.error("what the bucket knew of earlier producers is lost", extra=facts)
        return Seed(snapshot=encode_snapshot([]), leader_epochs=encode_epochs(_epochs(with_objects)))


def read_seed(bucket: Bucket, last: RemoteSegment) -> Seed:
    """What *last*, which has objects, carries of its end. Raises CorruptFile when it does not parse, KeyMissing, and
    what the store raises."""
    snapshot, epochs = last.layout.producer_snapshot, last.layout.leader_epoch
    raw = bucket.store.get(last.indexes_key, snapshot.start, epochs.stop)
    if len(raw) != epochs.stop - snapshot.start:
        raise CorruptFile(last.indexes_key, snapshot.start + len(raw), f"it ends here, not at {epochs.stop}")
    found = Seed(snapshot=raw[: snapshot.length], leader_epochs=raw[epochs.start - snapshot.start :])
    if last.key_id is not None:
        key = last.manifest_key
        unseal = body_of(parse_manifest(bucket.store.get(key), key), bucket.ring, key).transform.restore_index
        found = Seed(
            snapshot=unseal(found.snapshot, last.indexes_key, snapshot.start),
            leader_epochs=unseal(found.leader_epochs, last.indexes_key, epochs.start),
        )
    parse_snapshot(found.snapshot, last.indexes_key)
    parse_epochs(found.leader_epochs, last.indexes_key)
    return found


def _epochs(segments: Sequence[RemoteSegment]) -> list[EpochEntry]:
    """As the segments' own manifests say them."""
    starts: dict[int, int] = {}
    for segment in segments:
        for one in segment.epochs:
            starts.setdefault(one.epoch, one.start)
    return [EpochEntry(epoch, start) for epoch, start in sorted(starts.items())]
