"""One segment out of the bucket into the files that it was made of; the `.log` gets its name last. Blocking."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tierd.base.disk import Disk
from tierd.base.errors import CorruptFile
from tierd.remote.body import body_of
from tierd.remote.crc import crc32c
from tierd.remote.indexes import IndexFiles
from tierd.remote.manifest import Manifest
from tierd.remote.open import Bucket
from tierd.storage.names import TMP, Suffix, log_file, segment_file
from tierd.tiering.restore.cutoff import cut_off
from tierd.tiering.restore.pieces import Piece, producers_before
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.content import check_content
from tierd.tiering.verify.look import read_manifest
from tierd.tiering.verify.segment import LogStream, index_files, other_crc, told_of
from tierd.tiering.verify.verdicts import Verdict


def is_made(folder: Path, piece: Piece) -> bool:
    """Whether an earlier run has made it: the `.log` has its name after all has been checked and is on the disk."""
    path = folder / log_file(piece.base)
    return path.exists() and path.stat().st_size == piece.size_bytes


def fetch_segment(
    bucket: Bucket, disk: Disk, folder: Path, pieces: Sequence[Piece], at: int, report: Callable[[int], None]
) -> None:
    """Make the files of piece number *at* in *folder*, on the disk when it returns. *report* gets bytes as they come.

    Raises NotFound and CorruptFile when the bucket does not have it whole, KeyMissing, RemoteUnavailable, DiskFull,
    OSError.
    """
    piece = pieces[at]
    segment = piece.segment
    if not segment.size_bytes:
        _put(disk, folder, piece, {Suffix.INDEX: b"", Suffix.TIME_INDEX: b"", Suffix.LOG: b""})
        return
    manifest, extras = read_manifest(bucket, segment.stem)
    _compare(segment, manifest)
    body = body_of(manifest, bucket.ring, segment.manifest_key)
    raw = bucket.store.get(segment.indexes_key)
    _check_crc(segment.indexes_key, crc32c(raw), segment.indexes_crc, extras.indexes_crc)
    files = index_files(raw, manifest, body, segment.indexes_key)
    stream = LogStream(bucket, segment.stem, body)
    path = folder / (log_file(segment.base) + TMP)
    findings = check_content(told_of(segment.stem, manifest), _written(disk, path, stream.pieces(), report), files)
    for found in findings:
        if found.verdict is Verdict.FAILURE:
            raise CorruptFile(segment.stem, 0, found.reason)
    _check_crc(stream.key, stream.crc, segment.log_crc, extras.log_crc)
    if piece.is_whole:
        _put(disk, folder, piece, _contents(files))
    else:
        _put(disk, folder, piece, cut_off(disk, path, piece, files, producers_before(bucket, pieces, at)))


def _compare(segment: RemoteSegment, manifest: Manifest) -> None:
    found = (manifest.segment_id, manifest.base, manifest.next_base, manifest.size_bytes)
    expected = (segment.segment_id, segment.base, segment.next_base, segment.size_bytes)
    if found != expected:
        raise CorruptFile(segment.manifest_key, 0, f"it speaks of another segment: {found}, not {expected}")


def _check_crc(key: str, found: int, *told: int | None) -> None:
    """The first that anybody has *told* counts."""
    expected = next((one for one in told if one is not None), None)
    if expected is not None and found != expected:
        raise CorruptFile(key, 0, other_crc(key, found, expected))


def _written(
    disk: Disk, path: Path, pieces: Iterator[bytes | bytearray], report: Callable[[int], None]
) -> Iterator[bytes | bytearray]:
    """Each piece once it is in the file; the file is on the disk after the last one."""
    disk.write_new(path, b"")
    file = disk.open(path)
    try:
        at = 0
        for piece in pieces:
            file.pwrite(piece, at)
            at += len(piece)
            report(len(piece))
            yield piece
        file.fsync()
    finally:
        file.close()


def _contents(files: IndexFiles) -> dict[Suffix, bytes]:
    found = {Suffix.INDEX: files.offset, Suffix.TIME_INDEX: files.timestamp}
    if files.transaction:
        found[Suffix.TXN_INDEX] = files.transaction
    if files.producer_snapshot:  # plugins of old wrote none
        found[Suffix.SNAPSHOT] = files.producer_snapshot
    return found


def _put(disk: Disk, folder: Path, piece: Piece, contents: dict[Suffix, bytes]) -> None:
    """*contents* under their names, then the `.log`, which is there already unless it is one of them."""
    names = {suffix: _name(piece, suffix) for suffix in (*contents, Suffix.LOG)}
    for suffix, raw in contents.items():
        disk.write_new(folder / (names[suffix] + TMP), raw)
        disk.fsync_file(folder / (names[suffix] + TMP))
    if piece.segment.append_ms > 0:  # what retention goes by where records have no time
        disk.set_mtime(folder / (names[Suffix.LOG] + TMP), piece.segment.append_ms)
    for suffix in names:
        if suffix is not Suffix.LOG:
            disk.replace(folder / (names[suffix] + TMP), folder / names[suffix])
    disk.fsync_dir(folder)  # a log with its name has its indexes, also after a power cut
    disk.replace(folder / (names[Suffix.LOG] + TMP), folder / names[Suffix.LOG])
    disk.fsync_dir(folder)


def _name(piece: Piece, suffix: Suffix) -> str:
    """A snapshot is named by the end."""
    return segment_file(piece.stop if suffix is Suffix.SNAPSHOT else piece.base, suffix)
