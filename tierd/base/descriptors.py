"""How many files and sockets the process may have open, and who gets how many of them."""

import resource

_LOGS, _REMOTE, _REST = 4096, 4096, 512
"""At most for log files kept open, for what was read from the bucket, and for all else (flushes, databases)."""


def raise_limit() -> None:
    """As many as this process may have: the soft limit is for programs that use select(2)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_sockets() -> int | None:
    """How many client connections leave enough for files: a log that cannot open one would take nothing. None: any."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(soft // 2, soft - _LOGS - _REMOTE - _REST, 1)


def for_logs() -> int:
    """How many log files may stay open: a quarter of all at most."""
    return _share(_LOGS, 4)


def for_remote_reads() -> int:
    """How many files with what was read from the bucket may be out to clients: an eighth of all at most."""
    return _share(_REMOTE, 8)


def _share(most: int, part: int) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return most if soft == resource.RLIM_INFINITY else max(1, min(most, soft // part))
