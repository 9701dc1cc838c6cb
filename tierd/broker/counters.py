"""What the broker has done since it started; plain numbers, read when somebody asks (metrics, status)."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counters:
    """Loop thread only."""

    requests: Counter[int] = field(default_factory=Counter)
    """Requests by api key."""
    bad_requests: int = 0
    handshakes_failed: int = 0
    """Of TLS."""
    authentications_failed: int = 0
    """Of SASL."""
    sessions_expired: int = 0
    """Connections closed because their client did not authenticate again in time."""
    denied: int = 0
    """Things that clients have asked for and may not do."""
    throttled: int = 0
    """Requests whose client had to pause for its quota."""
    throttled_ms: int = 0
    """Of these pauses together."""
    produced_bytes: int = 0
    fetched_bytes: int = 0
    """From both tiers."""
    fetched_remote_bytes: int = 0
    remote_reads_failed: int = 0
    cleanings: int = 0
    cleanings_failed: int = 0
    cleaned_bytes: int = 0
    """Read by compaction, of these."""
    kept_bytes: int = 0
    """Left by it."""
    commits: int = 0
    """Flushes that requests waited for."""
    committed_requests: int = 0
    """Appends that such a flush answered."""
