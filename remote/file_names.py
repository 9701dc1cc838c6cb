"""Where a key lies in a `file:` bucket, and which key a file there is (LAYOUT.md, "A directory as the bucket").

A key's parts between "/" are the names of folders and the file, as they are; so a plain copy of an S3 bucket opens.
A part longer than 240 bytes is cut into pieces of 240 bytes, each but the last followed by "~" and a folder of its own.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from tierd.remote.errors import RequestRefused

PIECE_BYTES = 240
MORE = "~"
META_FOLDER = ".tierd-meta"
_CUT_BYTES = PIECE_BYTES + len(MORE)


def path_parts(key: str) -> list[str]:
    """File names below the bucket's directory. Raises RequestRefused for a key that cannot be a file."""
    parts = key.split("/")
    if parts[0] == META_FOLDER or any(_impossible(part) for part in parts):
        raise RequestRefused(key, "InvalidKey", 'cannot be a file name: empty, ".", "..", ends in "~", or reserved')
    return [piece for part in parts for piece in _pieces(part)]


def _impossible(part: str) -> bool:
    return part in ("", ".", "..") or part.endswith(MORE) or "\0" in part


def _pieces(part: str) -> Iterator[str]:
    raw = os.fsencode(part)
    while len(raw) > PIECE_BYTES:
        yield os.fsdecode(raw[:PIECE_BYTES]) + MORE
        raw = raw[PIECE_BYTES:]
    yield os.fsdecode(raw)


def children(folder: Path, *, top: bool) -> list[tuple[str, Path]]:
    """Names in *folder* in byte order of their keys, folders with a "/" behind; cut names are put together.

    *top*: this is the bucket's own directory, where the reserved folder lies. A folder that is gone has none.
    """
    try:
        with os.scandir(folder) as entries:
            found = [(entry.name, entry.is_dir(), Path(entry.path)) for entry in entries]
    except (FileNotFoundError, NotADirectoryError):
        return []
    named: list[tuple[str, Path]] = []
    for name, is_folder, path in found:
        if top and name == META_FOLDER:
            continue
        if not name.endswith(MORE):
            named.append((name + "/" if is_folder else name, path))
        elif is_folder and len(os.fsencode(name)) == _CUT_BYTES:
            start = os.fsencode(name)[:PIECE_BYTES]
            named += ((os.fsdecode(start + os.fsencode(rest)), at) for rest, at in children(path, top=False))
    return sorted(named)
