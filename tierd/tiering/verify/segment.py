"""Looks into one segment: its manifest, and what the bucket says of its objects or (deep) all their bytes. Blocking."""

from collections.abc import Iterator
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.remote.body import Body, body_of
from tierd.remote.crc import crc32c
from tierd.remote.errors import KeyMissing, NotFound, ObjectArchived, RequestRefused
from tierd.remote.extras import SegmentExtras
from tierd.remote.indexes import IndexFiles, split_indexes
from tierd.remote.keys import ObjectKind
from tierd.remote.manifest import Manifest
from tierd.remote.open import Bucket
from tierd.remote.ranges import ByteRange
from tierd.tiering.verify.content import Told, check_content
from tierd.tiering.verify.facts import Seen
from tierd.tiering.verify.look import read_manifest
from tierd.tiering.verify.spending import Cost
from tierd.tiering.verify.verdicts import Finding, Verdict

RANGE_BYTES = 8 * 1024 * 1024
"""One GET of a deep look."""
_SHALLOW = 3
"""Requests: the manifest, a HEAD of each of the others."""


def cost_of(seen: Seen, *, deep: bool) -> Cost:
    """What `check_segment` will ask for, when nothing is wrong."""
    sizes = {kind: info.size for kind, info in seen.objects.items()}
    if not deep:
        return Cost(_SHALLOW, sizes.get(ObjectKind.MANIFEST, 0))
    log_bytes = sizes.get(ObjectKind.LOG, 0)
    return Cost(2 + -(-log_bytes // RANGE_BYTES), sum(sizes.values()))


def check_segment(bucket: Bucket, seen: Seen, *, deep: bool, crc_expected: bool) -> list[Finding]:
    """*seen* has all its objects in the listing. *crc_expected*: tierd wrote it, so its CRC-32Cs should be known.

    Raises RemoteUnavailable.
    """
    try:
        manifest, extras = seen.read or read_manifest(bucket, seen.stem)
    except ObjectArchived as error:
        return [_of(seen, Verdict.WARNING, f"not looked into: {error}")]
    except (NotFound, CorruptFile) as error:
        return [_of(seen, Verdict.FAILURE, str(error))]
    findings = compare(seen, manifest)
    if findings:
        return findings  # of which of them the objects are nobody can tell
    told = told_crcs(seen, extras)
    if crc_expected and None in (told.log, told.indexes):
        findings.append(_of(seen, Verdict.WARNING, "nobody knows the CRC-32C that it was copied with"))
    if not deep:
        return findings + _stated(bucket, seen, told)
    found = _content(bucket, seen, manifest, told)
    if any(one.verdict is Verdict.FAILURE for one in found):
        found = _content(bucket, seen, manifest, told)  # it may have been damaged on the way
    return findings + found


def compare(seen: Seen, manifest: Manifest) -> list[Finding]:
    """Key, listing and head against the manifest."""
    name, remote = seen.name, seen.row.remote
    own = (manifest.topic_id, manifest.partition, manifest.base, manifest.segment_id)
    if own != (name.topic_id, name.partition, name.base, name.segment_id):
        return [_of(seen, Verdict.FAILURE, f"{seen.stem}: its manifest is that of another segment")]
    if (manifest.next_base, manifest.size_bytes) != (remote.next_base, remote.size_bytes):
        what = f"offsets to {manifest.next_base - 1} in {manifest.size_bytes} bytes"
        head = f"offsets to {remote.next_base - 1} in {remote.size_bytes} bytes"
        return [_of(seen, Verdict.FAILURE, f"{seen.stem}: its manifest says {what}, the head says {head}")]
    sizes = {ObjectKind.LOG: manifest.chunks.stored_bytes, ObjectKind.INDEXES: manifest.layout.size_bytes}
    return [
        _of(seen, Verdict.FAILURE, f"{seen.stem}{kind} has {seen.objects[kind].size} bytes, its manifest says {size}")
        for kind, size in sizes.items()
        if seen.objects[kind].size != size
    ]


@dataclass(frozen=True, slots=True)
class _Crcs:
    log: int | None
    indexes: int | None

    def of(self, kind: ObjectKind) -> int | None:
        return self.log if kind is ObjectKind.LOG else self.indexes


def told_crcs(seen: Seen, extras: SegmentExtras) -> _Crcs:
    """By the head, else by the manifest's user metadata."""
    entry = seen.entry
    log_crc, indexes_crc = (entry.log_crc, entry.indexes_crc) if entry is not None else (None, None)
    return _Crcs(
        extras.log_crc if log_crc is None else log_crc, extras.indexes_crc if indexes_crc is None else indexes_crc
    )


def _stated(bucket: Bucket, seen: Seen, told: _Crcs) -> list[Finding]:
    """What the bucket says of its objects without sending them."""
    found = []
    for kind in (ObjectKind.LOG, ObjectKind.INDEXES):
        key = seen.stem + kind
        try:
            info = bucket.store.head(key)
        except NotFound as error:
            found.append(_of(seen, Verdict.FAILURE, str(error)))
            continue
        expected = told.of(kind)
        if None not in (info.crc32c, expected) and info.crc32c != expected:
            found.append(_of(seen, Verdict.FAILURE, other_crc(key, info.crc32c or 0, expected or 0)))
    return found


def _content(bucket: Bucket, seen: Seen, manifest: Manifest, told: _Crcs) -> list[Finding]:
    """Every byte of both objects."""
    findings: list[Finding] = []
    try:
        body = body_of(manifest, bucket.ring, seen.stem + ObjectKind.MANIFEST)
        stream = LogStream(bucket, seen.stem, body)
        files = _indexes(bucket, seen, manifest, body, told, findings)
        findings += check_content(told_of(seen.stem, manifest), stream.pieces(), files)
    except (KeyMissing, ObjectArchived) as error:
        return [_of(seen, Verdict.WARNING, f"not looked into: {error}")]
    except (NotFound, RequestRefused, CorruptFile) as error:
        return [*findings, _of(seen, Verdict.FAILURE, str(error))]
    if told.log is not None and stream.ended and stream.crc != told.log:
        findings.append(_of(seen, Verdict.FAILURE, other_crc(stream.key, stream.crc, told.log)))
    return findings


def _indexes(
    bucket: Bucket, seen: Seen, manifest: Manifest, body: Body, told: _Crcs, findings: list[Finding]
) -> IndexFiles | None:
    key = seen.stem + ObjectKind.INDEXES
    raw = bucket.store.get(key)
    found = crc32c(raw)
    if told.indexes is not None and found != told.indexes:
        findings.append(_of(seen, Verdict.FAILURE, other_crc(key, found, told.indexes)))
    try:
        return index_files(raw, manifest, body, key)
    except CorruptFile as error:
        findings.append(_of(seen, Verdict.FAILURE, str(error)))
        return None


def index_files(raw: bytes, manifest: Manifest, body: Body, key: str) -> IndexFiles:
    """The local files out of an `.indexes` object. Raises CorruptFile."""
    parts = zip(manifest.layout.parts(), _parts_of(split_indexes(raw, manifest.layout, key)), strict=True)
    plain = [body.transform.restore_index(part, key, at.start) for at, part in parts]
    return IndexFiles(
        offset=plain[0],
        timestamp=plain[1],
        producer_snapshot=plain[2],
        leader_epoch=plain[3],
        transaction=plain[4] if len(plain) > 4 else None,
    )


def _parts_of(files: IndexFiles) -> list[bytes]:
    """In the order of the layout."""
    parts = [files.offset, files.timestamp, files.producer_snapshot, files.leader_epoch]
    return parts if files.transaction is None else [*parts, files.transaction]


class LogStream:
    """A `.log` object, its own bytes in pieces, its CRC-32C taken on the way."""

    def __init__(self, bucket: Bucket, stem: str, body: Body) -> None:
        self.key = stem + ObjectKind.LOG
        self.crc = 0
        self.ended = False
        """All pieces were given; without that `crc` is that of a part."""
        self._store = bucket.store
        self._body = body

    def pieces(self) -> Iterator[bytes | bytearray]:
        """Raises NotFound, and CorruptFile at a chunk that does not decrypt or decompress."""
        chunks = self._body.chunks
        step_bytes = max(1, RANGE_BYTES // chunks.original_chunk_bytes) * chunks.original_chunk_bytes
        for start in range(0, chunks.original_file_bytes, step_bytes):
            part = ByteRange(start, min(start + step_bytes, chunks.original_file_bytes))
            stored = self._body.stored_range(part)
            data = self._store.get(self.key, stored.start, stored.stop)
            self.crc = crc32c(data, self.crc)
            if len(data) != stored.length:
                raise CorruptFile(self.key, stored.start + len(data), f"the object ends here, not at {stored.stop}")
            yield self._body.restore(data, part, self.key)
        self.ended = True


def told_of(stem: str, manifest: Manifest) -> Told:
    """What the manifest says, for `check_content`."""
    return Told(
        log_key=stem + ObjectKind.LOG,
        indexes_key=stem + ObjectKind.INDEXES,
        segment_id=manifest.segment_id,
        base=manifest.base,
        next_base=manifest.next_base,
        size_bytes=manifest.size_bytes,
        largest_timestamp_ms=manifest.largest_timestamp_ms,
        epochs=manifest.epochs,
    )


def other_crc(key: str, found: int, expected: int) -> str:
    """In words."""
    return f"{key} has the CRC-32C {found:08x}, it was copied with {expected:08x}"


def _of(seen: Seen, verdict: Verdict, reason: str) -> Finding:
    return Finding(verdict, seen.base, seen.next_base, reason, seen.name.segment_id)
