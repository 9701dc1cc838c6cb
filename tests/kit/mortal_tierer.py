"""The tierer's process as it is, but it kills itself at its n-th change of the bucket, before or after it.

Run as a program, by its path: `mortal_tierer.py [--dies before:3] --unless FILE --fd N`. It ends at once when FILE is
there: a machine without power starts nothing.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tierd.remote.open import Bucket, open_store
from tierd.remote.store import DeleteOutcome, ObjectInfo, ObjectStore
from tierd.tiering import process

Result = TypeVar("Result")


class MortalStore:
    """An ObjectStore whose process ends at change number *last*; before it, or when it is done but nobody knows."""

    def __init__(self, store: ObjectStore, last: int, *, after: bool) -> None:
        self._store = store
        self._last = last
        self._after = after
        self._lock = threading.Lock()
        self._count = 0

    def put(self, key: str, data: Any, **how: Any) -> ObjectInfo:
        return self._change(lambda: self._store.put(key, data, **how))

    def delete(self, keys: Sequence[str]) -> tuple[DeleteOutcome, ...]:
        return self._change(lambda: self._store.delete(keys))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _change(self, work: Callable[[], Result]) -> Result:
        with self._lock:
            self._count += 1
            if self._count < self._last:
                return work()
            if self._after:
                work()
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("still here")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--unless", type=Path, required=True)
    parser.add_argument("--dies")
    parser.add_argument("--log-level", default="INFO")
    told = parser.parse_args()
    if told.unless.exists():
        sys.exit(0)
    logging.basicConfig(level=told.log_level.upper(), stream=sys.stderr)
    if told.dies is not None:
        when, _, last = told.dies.partition(":")

        def mortal(*of: Any, **how: Any) -> Bucket:
            bucket = open_store(*of, **how)
            store: Any = MortalStore(bucket.store, int(last), after=when == "after")
            return Bucket(store, bucket.keys, bucket.url)

        vars(process)["open_store"] = mortal
    process.main(told.fd)


if __name__ == "__main__":
    main()
