"""Addresses of Unix sockets: the kernel takes 108 bytes, paths may be longer."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHORT_BYTES = 100


@contextmanager
def address_of(path: Path) -> Iterator[str]:
    """What to bind or connect to for *path* while the block runs; a long one goes by its directory's descriptor.

    Raises OSError when the directory is not there.
    """
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield str(path) if len(os.fsencode(path)) < _SHORT_BYTES else f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
