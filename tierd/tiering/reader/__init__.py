"""Remote reads: ranges of the bucket become checked cache files, read ahead of whoever goes on reading.

Pure: `extents` (which ranges), `table` (where batches lie), `ahead` (what to fetch early), `pace` (how much of it).
Event loop: `cache` (files), `permits` (memory), `slots` and `pool` (extents), `indexes`. Threads: `fetch`.
Answers: `reader`, `times`, `aborted`.
"""

from tierd.tiering.reader.options import ReaderOptions
from tierd.tiering.reader.reader import RemoteReader

__all__ = ["ReaderOptions", "RemoteReader"]
