"""What lies in the state directory, by name."""

from typing import Final

REGISTRY: Final = "registry.sqlite"
CATALOG: Final = "catalog.sqlite"
TIERER_LOCK: Final = "tierer.lock"
CACHE: Final = "cache"
USAGE: Final = "usage.sqlite"
"""What the bucket was asked, by month, topic and operation."""
BALLAST: Final = "ballast"
SET_ASIDE: Final = "set-aside"
CONTROL_SOCKET: Final = "control.sock"
ARCHIVE_DATA: Final = "local"
"""Where an archive keeps the logs of its own topics."""
VERIFY: Final = "verify.json"
RESTORE: Final = "restore.json"
"""Of a restore that is not whole yet: where from, and which new ids its topics have."""
