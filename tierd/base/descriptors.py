"""How many files and sockets the process may have open, and who gets how many of them."""

import resource

_FILES = 4096 + 512
"""More than the log files that are kept open, and what else is."""


def raise_limit() -> None:
    """As many as this process may have: the soft limit is for programs that use select(2)."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def for_sockets() -> int | None:
    """How many client connections leave enough for files: a log that cannot open one would go offline. None: any."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(soft // 2, soft - _FILES, 1)
