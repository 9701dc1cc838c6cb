"""Looks at buckets with `tierd verify`'s own engine, and damages them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from kit.clock import FakeClock
from kit.tierer_bench import KEYS, Bench, drive, who
from tierd.remote import crc
from tierd.remote.open import Bucket
from tierd.remote.store import ObjectStore
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.run import Progress, Report, Verify
from tierd.tiering.verify.spending import Budget
from tierd.tiering.verify.standing import Standing, begin
from tierd.tiering.verify.verdicts import Verdict

FRESH = Standing(url="memory:", deep=False, percent=100.0)
DEEP = replace(FRESH, deep=True)


@dataclass
class Looked:
    """Runs verify, one after the other, as the verb does."""

    bucket: Bucket
    kept: Standing | None = None
    seen: list[Progress] = field(default_factory=list)

    def __call__(
        self, fresh: Standing = DEEP, *, budget: Budget | None = None, anew: bool = False, threads: int = 3
    ) -> Report:
        def keep_it(standing: Standing) -> None:
            self.kept = standing

        return Verify(
            self.bucket,
            FakeClock(),
            begin(self.kept, fresh, anew=anew),
            budget=budget or Budget(),
            threads=threads,
            keep=keep_it,
            report=self.seen.append,
        ).run()


def told(report: Report) -> list[tuple[Verdict, int, int]]:
    (one,) = report.standing.reports
    return [(found.verdict, found.start, found.stop) for found in one.ranges]


def reasons(report: Report) -> str:
    return "\n".join(text for one in report.standing.reports for found in one.ranges for text in found.reasons)


def with_copy(tmp_path: Path, work: Callable[[Bench, Looked, list[RemoteSegment]], None]) -> None:
    """A partition of several segments, all copied, its head written."""

    async def run(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        await bench.tierer.publish_head(view.id)
        rows = [row.remote for row in bench.catalog.segments(view.id)]
        assert len(rows) > 3
        work(bench, Looked(Bucket(bench.store, KEYS, "memory:")), rows)

    drive(tmp_path, run)


def replaced(store: ObjectStore, key: str, change: Callable[[bytes], bytes]) -> None:
    """Other bytes under the same key; user metadata stays, as a bit that rots leaves it."""
    info, raw = store.get_with_info(key)
    new = change(raw)
    store.put(key, new, crc32c=crc.crc32c(new), metadata=info.metadata)


def flip(raw: bytes) -> bytes:
    return raw[:-1] + bytes([raw[-1] ^ 1])
