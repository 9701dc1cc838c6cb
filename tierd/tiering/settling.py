"""What became of a copy that was cut off between its first byte and the catalog's last word. Blocking."""

from tierd.base.clock import Clock
from tierd.remote.keys import SegmentName
from tierd.remote.open import Bucket
from tierd.tiering.catalog import Catalog
from tierd.tiering.intake import committed_row
from tierd.tiering.lifecycle import CopyState
from tierd.tiering.rows import CatalogSegment


def settle(bucket: Bucket, catalog: Catalog, clock: Clock, row: CatalogSegment, settle_ms: int) -> CopyState:
    """Decide about a COPY_STARTED row that nobody has in hand: committed when its manifest is there and all fits.

    Else its objects go once no request for them can still land: *settle_ms* from now. Raises RemoteUnavailable.
    """
    remote = row.remote
    name = SegmentName(remote.topic, remote.part.topic_id, remote.part.partition, remote.base, remote.segment_id)
    found = committed_row(bucket.store, name, remote.stem)
    if found is not None:
        catalog.finished(found)
        return CopyState.COPY_FINISHED
    server_ms = bucket.store.now_ms()
    catalog.deleting(row, due_ms=(clock.now_ms() if server_ms is None else server_ms) + settle_ms)
    return CopyState.DELETE_STARTED
