"""What one timed piece of work cost: wall and CPU seconds per process, private memory; medians and spread."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of one process and its threads so far (10 ms steps)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def private_mib(pid: int) -> float:
    """Private memory: what would be free if the process ended."""
    kib = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            kib += int(line.split()[1])
    return kib / 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: bytes moved, seconds it took, CPU seconds of each process meanwhile."""

    moved_bytes: int
    wall_s: float
    cpu_s: Mapping[str, float]

    @property
    def mb_per_s(self) -> float:
        return self.moved_bytes / 1e6 / self.wall_s

    @property
    def cpu_s_per_gib(self) -> float:
        return sum(self.cpu_s.values()) / (self.moved_bytes / GIB)


def timed(work: Callable[[], int], pids: Mapping[str, int]) -> Sample:
    """Run *work* (it gives the bytes it moved) and charge the CPU that each named process used meanwhile."""
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    start = time.perf_counter()
    moved = work()
    wall_s = time.perf_counter() - start
    return Sample(moved, wall_s, {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()})


@dataclass(frozen=True, slots=True)
class Spread:
    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g}-{self.high:.3g})"


def spread(values: Iterable[float]) -> Spread:
    ordered = sorted(values)
    return Spread(ordered[0], statistics.median(ordered), ordered[-1])


def interleaved(runs: Mapping[str, Callable[[], Sample]], rounds: int) -> dict[str, list[Sample]]:
    """A B C A B C ...: drift of the machine hits all alike; one round before is not counted."""
    taken: dict[str, list[Sample]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            sample = run()
            if number:
                taken[name].append(sample)
    return taken
