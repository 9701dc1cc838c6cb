"""Folders whose names last."""

from pathlib import Path

from tierd.base.disk import Disk


def make_folder(disk: Disk, path: Path) -> None:
    """Make *path* and missing parents, durable when it returns. Raises DiskFull, OSError."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    disk.mkdir(path)
    for folder in reversed(missing):
        disk.fsync_dir(folder.parent)
