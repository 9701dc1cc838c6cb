"""Which offsets a log has lost between segments that it kept, remembered in the state directory beside the bytes cut.

Nothing on the disk tells a lost offset from one that was never given out: the finding is written down once.
"""

import json
import logging
from pathlib import Path

from tierd.base.disk import Disk, publish
from tierd.base.ids import TopicPartition, Uuid
from tierd.storage.folders import make_folder
from tierd.storage.names import partition_directory

log = logging.getLogger(__name__)

Gap = tuple[int, int]
"""Offsets [start, stop)."""


class GapFile:
    """The gaps of one partition. A topic made anew under the same name has another id, and so another file."""

    def __init__(self, root: Path, disk: Disk, name: TopicPartition, topic_id: Uuid) -> None:
        self._path = root / partition_directory(name) / f"gaps-{topic_id}.json"
        self._disk = disk

    def load(self, log_start: int) -> list[Gap]:
        """Those that still matter; none when the file is missing or broken."""
        try:
            found = [(int(start), int(stop)) for start, stop in json.loads(self._path.read_text())["gaps"]]
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError) as error:
            log.warning("recorded gaps are not readable", extra={"file": str(self._path), "why": str(error)})
            return []
        return [gap for gap in found if gap[1] > log_start]

    def save(self, gaps: list[Gap]) -> None:
        """Durable when it returns."""
        make_folder(self._disk, self._path.parent)
        publish(self._disk, self._path, json.dumps({"gaps": gaps}).encode())


def merged(gaps: list[Gap]) -> list[Gap]:
    """Sorted, each once, those that touch joined."""
    joined: list[Gap] = []
    for start, stop in sorted(gaps):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(stop, joined[-1][1])
        else:
            joined.append((start, stop))
    return joined
