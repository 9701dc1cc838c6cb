"""The ballast: a file in the state directory that holds room for the moment when the disk is full.

Without it nothing could be noted any more, not even the evictions that make room. It goes as soon as a database finds
no room, or at a look that finds little, and is made again once there is plenty.
"""

import errno
import logging
import os
from pathlib import Path

from tierd.config.state_files import BALLAST

log = logging.getLogger(__name__)

BALLAST_BYTES = 4 << 20
_PART = 16  # a small file system gives that part of itself
_A_FEW_PAGES = 64 << 10
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def ballast_bytes(folder: Path) -> int:
    """How large it is to be on the file system of *folder*. Raises OSError."""
    stat = os.statvfs(folder)
    return min(BALLAST_BYTES, stat.f_blocks * stat.f_frsize // _PART)


def reserve_bytes(folder: Path, data: Path, wanted_bytes: int) -> int:
    """What appends in *data* must leave free: the room of a released ballast is not for them. Raises OSError."""
    there = next(one for one in (data, *data.parents) if one.exists())
    if there.stat().st_dev != folder.stat().st_dev:
        return wanted_bytes
    return max(wanted_bytes, ballast_bytes(folder))


def is_full(folder: Path) -> bool:
    """Whether its file system has next to no room, or no inode left. Raises OSError."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize < _A_FEW_PAGES or (stat.f_files > 0 and stat.f_favail == 0)


def is_scarce(folder: Path) -> bool:
    """Whether there is so little room that nothing may be written that can do without. Raises OSError."""
    stat = os.statvfs(folder)
    return stat.f_bavail * stat.f_frsize < 2 * ballast_bytes(folder)


def release(folder: Path) -> bool:
    """Give its room back; whether there was one. Raises OSError."""
    try:
        (folder / BALLAST).unlink()
    except FileNotFoundError:
        return False
    log.warning("the disk is full: the ballast is released; evict, delete or add space", extra={"folder": str(folder)})
    return True


def look(folder: Path) -> None:
    """Release it when there is less room than it holds; make it once there is twice as much. Raises OSError."""
    stat = os.statvfs(folder)
    size_bytes, free_bytes = ballast_bytes(folder), stat.f_bavail * stat.f_frsize
    path = folder / BALLAST
    if free_bytes < size_bytes:
        release(folder)
    elif not is_scarce(folder) and not path.exists():
        _make(path, size_bytes)


def keep(folder: Path) -> None:
    """`look`, again and again: what goes wrong is only said. Any thread."""
    try:
        look(folder)
    except OSError as error:
        log.warning("the ballast is not looked after: %s", error, extra={"folder": str(folder)})


def _make(path: Path, size_bytes: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in _NO_ROOM:
            raise
    finally:
        os.close(fd)
