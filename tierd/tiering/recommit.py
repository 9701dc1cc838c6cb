"""A committed segment that has lost nothing but its manifest is committed again: the catalog knows what stood in it.

Only where the objects are the segment byte for byte: of others the manifest alone knew the chunks or the wrapped key.
And only where the disk cannot copy it again, for that makes another segment of it. Blocking.
"""

from dataclasses import replace

from tierd.remote.chunks import plain_chunks
from tierd.remote.crc import crc32c
from tierd.remote.manifest import encode_manifest
from tierd.storage.view import PartitionView
from tierd.tiering.copier import Ownership, manifest_of, metadata_of
from tierd.tiering.losses import gone
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.state import COMMIT_WITHIN_MS, TierState


def lacks_only_manifest(row: CatalogSegment, why: str, view: PartitionView) -> bool:
    """*why*: what a LIST has shown to be wrong with it."""
    remote = row.remote
    plain = remote.size_bytes and remote.stored_bytes is None and remote.key_id is None
    if not plain or why != gone(remote.manifest_key) or row.released_ms is not None:
        return False
    here = {(one.base, one.next_base): one.size_bytes for one in view.closed}
    return here.get((remote.base, remote.next_base), 0) < remote.size_bytes


def commit_again(state: TierState, row: CatalogSegment) -> None:
    """Raises PreconditionFailed when there is a manifest after all, ClaimLost, RemoteUnavailable, RequestRefused."""
    remote, run = row.remote, state.run
    manifest = manifest_of(
        remote, plain_chunks(remote.size_bytes), node_id=state.options.node_id, written_ms=state.clock.now_ms()
    )
    owner = Ownership(epoch=state.claim.epoch, incarnation=None if run is None else run.incarnation)
    raw = encode_manifest(manifest)
    state.require_owned(COMMIT_WITHIN_MS)
    store = state.bucket.store
    store.put(remote.manifest_key, raw, crc32c=crc32c(raw), metadata=metadata_of(row, owner), if_none_match=True)
    state.catalog.finished(replace(row, manifest_bytes=len(raw)))
