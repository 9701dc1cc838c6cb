"""Takes objects out of the bucket (remote/LAYOUT.md, "Deleting"). Blocking; resumable after a stop at any step.

Catalog DELETE_STARTED -> manifests, in a request of their own -> the other objects -> DELETE_FINISHED.
"""

import logging
from collections.abc import Iterator, Sequence

from tierd.base.ids import PartitionId
from tierd.remote.keys import ObjectKind
from tierd.remote.open import Bucket
from tierd.remote.store import DeleteOutcome
from tierd.tiering.catalog import Catalog
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.refusals import REFUSED_AGAIN_MS, Refusals, Stuck
from tierd.tiering.rows import CatalogSegment

log = logging.getLogger(__name__)

BATCH = 300
"""Segments in one go: two objects each and their manifests stay below 1,000 keys a request."""


def delete_segments(
    bucket: Bucket, catalog: Catalog, refusals: Refusals, segments: Sequence[CatalogSegment], *, now_ms: int
) -> int:
    """Delete them; give how many are gone. What the bucket refuses stays DELETE_STARTED, due in a day.

    Raises RemoteUnavailable; what was begun is then finished by a later call (`due`).
    """
    gone = 0
    for batch in _batches(segments):
        catalog.deleting(*[row for row in batch if row.state is not CopyState.DELETE_STARTED])
        gone += _delete_batch(bucket, catalog, refusals, batch, now_ms)
    return gone


def due(catalog: Catalog, now_ms: int) -> list[CatalogSegment]:
    """Deletes that were begun and may go on now."""
    begun = catalog.in_state(CopyState.DELETE_STARTED)
    return [row for row in begun if row.due_ms is None or row.due_ms <= now_ms]


def _batches(segments: Sequence[CatalogSegment]) -> Iterator[Sequence[CatalogSegment]]:
    for at in range(0, len(segments), BATCH):
        yield segments[at : at + BATCH]


def _delete_batch(
    bucket: Bucket, catalog: Catalog, refusals: Refusals, batch: Sequence[CatalogSegment], now_ms: int
) -> int:
    with_objects = [row for row in batch if row.remote.size_bytes]
    for row in with_objects:
        if row.remote.log_etag is None and row.records is None:
            _abort_uploads(bucket, row)
    outcomes = bucket.store.delete([row.remote.manifest_key for row in with_objects])
    refused = _refused(outcomes)
    ready = [row for row in with_objects if row.remote.manifest_key not in refused]
    outcomes += bucket.store.delete([key for row in ready for key in (row.remote.log_key, row.remote.indexes_key)])
    refused = _refused(outcomes)
    stuck = [row for row in with_objects if refused & _keys(row)]
    if stuck:
        catalog.deleting(*stuck, due_ms=now_ms + REFUSED_AGAIN_MS)
    done = [row for row in batch if row not in stuck]
    catalog.deleted(*done)
    _note(refusals, batch, Stuck.of(outcomes), len(stuck), now_ms)
    return len(done)


def _note(
    refusals: Refusals, batch: Sequence[CatalogSegment], refusal: Stuck | None, segments: int, now_ms: int
) -> None:
    if refusal is not None:  # one line, however many they are
        facts = {"segments": segments, "key": refusal.key, "reason": refusal.why, "locked_until_ms": refusal.until_ms}
        log.error("the bucket refuses a delete; it is tried again in a day", extra=facts)
    for part in {row.remote.part for row in batch}:
        mine = refusal if refusal is not None and any(refusal.key in _keys(row) for row in batch) else None
        refusals.note(part, mine, now_ms + REFUSED_AGAIN_MS)


def _keys(row: CatalogSegment) -> set[str]:
    return {row.remote.stem + kind for kind in ObjectKind}


def _refused(outcomes: Sequence[DeleteOutcome]) -> set[str]:
    return {outcome.key for outcome in outcomes if outcome.refused is not None}


def _abort_uploads(bucket: Bucket, row: CatalogSegment) -> None:
    """Parts of a multipart upload that a failed or killed copy left behind."""
    for upload in list(bucket.store.list_uploads(row.remote.log_key)):
        bucket.store.abort_upload(upload.key, upload.upload_id)


def delete_head(bucket: Bucket, topic: str, part: PartitionId) -> None:
    """The last thing of a deleted topic's partition to go."""
    bucket.store.delete([bucket.keys.head(topic, part.topic_id, part.partition)])
