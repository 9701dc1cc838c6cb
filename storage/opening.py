"""Opening the logs of one directory side by side: CRC sums and waiting for the disk leave the interpreter free."""

from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage.context import LogContext
from tierd.storage.loader import Checkpoints, LoadedLog, load_log, pending
from tierd.storage.progress import Meter

THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A partition directory and all that must be known to open it."""

    name: TopicPartition
    topic_id: Uuid
    directory: Path
    settings: TopicSettings
    given: Checkpoints


def open_logs(context: LogContext, found: Sequence[Found], meter: Meter) -> list[LoadedLog]:
    """One for each of *found*. The first error ends all: what is under way stops soon, and then it is raised."""
    for one in found:
        meter.expect(*pending(one.directory, one.given))
    meter.begin()

    def load(one: Found) -> LoadedLog:
        loaded = load_log(context, one.directory, one.name, one.topic_id, one.settings, one.given, meter)
        meter.log_done()
        return loaded

    with ThreadPoolExecutor(THREADS, thread_name_prefix="open") as threads:
        waiting = [threads.submit(load, one) for one in found]
        done, _ = wait(waiting, return_when=FIRST_EXCEPTION)
        if any(future.exception() for future in done):
            meter.stop()
            threads.shutdown(wait=False, cancel_futures=True)
    first = [future for future in done if future.exception()]
    return [future.result() for future in first or waiting]
