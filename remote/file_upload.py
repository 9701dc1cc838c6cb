"""Multipart uploads of a `file:` bucket: one file in `.tierd-meta/uploads/<id>/`, each part written at its place."""

import json
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from typing_extensions import Buffer

from tierd.remote import crc
from tierd.remote.errors import Damaged, NotFound, RequestRefused
from tierd.remote.file_disk import Folders, mapped
from tierd.remote.store import ObjectInfo, UploadInfo

Name = Callable[[str, Path, int, Mapping[str, str]], ObjectInfo]
"""`FileStore.name`."""


def begin(
    folders: Folders, name: Name, key: str, metadata: Mapping[str, str], part_bytes: int, *, started_ms: int
) -> "FileUpload":
    folder = folders.uploads / secrets.token_hex(12)
    folders.make_folder(folder)
    info = {"key": key, "started_ms": started_ms}
    folders.disk.write_new(folder / "info.json", json.dumps(info).encode())
    folders.disk.open(folder / "data", create=True).close()
    return FileUpload(folders, name, folder, key, metadata, part_bytes)


def begun(folders: Folders, prefix: str) -> Iterator[UploadInfo]:
    """Uploads that are there; one that was left half-made by a crash has no key and is not shown."""
    if not folders.uploads.is_dir():
        return
    for folder in sorted(folders.uploads.iterdir()):
        with suppress(FileNotFoundError, ValueError, KeyError):
            info = json.loads((folder / "info.json").read_bytes())
            if info["key"].startswith(prefix):
                yield UploadInfo(info["key"], folder.name, int(info["started_ms"]))


def drop(folders: Folders, upload_id: str) -> None:
    """Remove the upload's folder; fine when it is gone."""
    folder = folders.uploads / upload_id
    if folder.parent != folders.uploads:
        return
    folders.remove(folder / "data")
    folders.remove(folder / "info.json")
    with suppress(FileNotFoundError):
        folders.disk.rmdir(folder)


class FileUpload:
    """Parts go to `(number - 1) * part_bytes` of one file, which gets the key's name at the end."""

    def __init__(
        self, folders: Folders, name: Name, folder: Path, key: str, metadata: Mapping[str, str], part_bytes: int
    ) -> None:
        self.key = key
        self.upload_id = folder.name
        self._folders = folders
        self._name = name
        self._file = folder / "data"
        self._metadata = metadata
        self._part_bytes = part_bytes
        self._parts: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self._done: ObjectInfo | None = None

    def put_part(self, number: int, data: Buffer, *, crc32c: int) -> None:
        view = memoryview(data).cast("B")
        if crc.crc32c(view) != crc32c:
            raise Damaged(f"{self.key}: part {number} does not have the CRC-32C that was given with it")
        if number < 1 or len(view) > self._part_bytes:
            raise RequestRefused(self.key, "InvalidPart", f"part {number} of {len(view)} bytes")
        with mapped(self.key):
            file = self._folders.disk.open(self._file)  # of its own: other threads write other parts
            try:
                file.pwrite(view, (number - 1) * self._part_bytes)
            finally:
                file.close()
        with self._lock:
            self._parts[number] = (crc32c, len(view))

    def complete(self) -> ObjectInfo:
        if self._done is not None:
            return self._done
        with self._lock:
            parts = [self._parts[number] for number in sorted(self._parts)]
            whole = sorted(self._parts) == list(range(1, len(parts) + 1))
        if not parts or not whole or any(size != self._part_bytes for _, size in parts[:-1]):
            raise RequestRefused(self.key, "InvalidPart", "parts are missing, or a part before the last is short")
        with mapped(self.key), self._folders.locked(self.key):
            try:
                self._seal(sum(size for _, size in parts))
            except FileNotFoundError as error:
                raise NotFound(f"{self.key} (upload {self.upload_id})") from error
            self._done = self._name(self.key, self._file, crc.combine_all(parts), self._metadata)
            drop(self._folders, self.upload_id)
        return self._done

    def _seal(self, size: int) -> None:
        file = self._folders.disk.open(self._file)
        try:
            file.truncate(size)  # a longer last part may have been sent before
            file.fsync()
        finally:
            file.close()

    def abort(self) -> None:
        with mapped(self.key):
            drop(self._folders, self.upload_id)
