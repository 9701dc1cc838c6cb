"""How transformed segments lie in their objects, out of their manifests; those that were used last are kept."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid
from tierd.remote.body import Body, body_of
from tierd.remote.keyring import KeyRing
from tierd.remote.manifest import parse_manifest
from tierd.tiering.segments import RemoteSegment

_KEPT = 256
"""About 40 KB each for a segment of 1 GiB in chunks of 1 MiB."""


class Bodies:
    """Any thread. Two that want the same one at the same time fetch it twice: it is small."""

    def __init__(self, get: Callable[[RemoteSegment], bytes], ring: KeyRing) -> None:
        """*get* brings a segment's manifest."""
        self._get = get
        self._ring = ring
        self._kept: OrderedDict[Uuid, Body] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, segment: RemoteSegment) -> Body:
        """Raises CorruptFile, KeyMissing and what *get* raises."""
        with self._lock:
            body = self._kept.get(segment.segment_id)
            if body is not None:
                self._kept.move_to_end(segment.segment_id)
                return body
        body = self._bring(segment)
        with self._lock:
            self._kept[segment.segment_id] = body
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return body

    def _bring(self, segment: RemoteSegment) -> Body:
        key = segment.manifest_key
        manifest = parse_manifest(self._get(segment), key)
        found = (manifest.segment_id, manifest.size_bytes, manifest.chunks.stored_bytes)
        if found != (segment.segment_id, segment.size_bytes, segment.stored_bytes):
            raise CorruptFile(key, 0, f"it speaks of other objects than were committed: {found}")
        return body_of(manifest, self._ring, key)
