"""A verb that works on a state directory while nobody else does."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tierd.base.errors import StartRefused
from tierd.config.state_files import TIERER_LOCK


@contextmanager
def alone_in(state_dir: Path, otherwise: str) -> Iterator[None]:
    """Raises StartRefused, which says *otherwise*, while somebody else has it; a daemon that starts meanwhile waits."""
    fd = os.open(state_dir / TIERER_LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StartRefused(f"{state_dir}: {otherwise}") from error
        yield
    finally:
        os.close(fd)
