"""What one timed piece of work cost: wall and CPU seconds per process, private memory; medians and spread."""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

MIB = 1 << 20
GIB = 1 << 30
_CPU_CLOCK = 2
"""With a pid it makes the clock id of that process's CPU time (clock_getcpuclockid(3))."""


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far, all of its threads, ended ones too."""
    return time.clock_gettime((~pid << 3) | _CPU_CLOCK)


class Others:
    """How much of the machine somebody else had since this was made. Ask once all children have ended."""

    def __init__(self) -> None:
        self._begun = time.perf_counter()
        self._busy, self._own = _busy_s(), _own_s()

    def percent(self) -> float:
        took = (time.perf_counter() - self._begun) * len(os.sched_getaffinity(0))
        return max(0.0, 100 * (_busy_s() - self._busy - (_own_s() - self._own)) / took)


def _busy_s() -> float:
    """CPU seconds of everybody since the boot, time that a hypervisor took included."""
    user, nice, system, _, _, irq, softirq, steal, *_ = map(
        int, Path("/proc/stat").read_text().split("\n")[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _own_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def private_mib(pid: int) -> float:
    """Private memory: what would be free if the process ended."""
    kib = 0
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(("Private_Clean:", "Private_Dirty:")):
            kib += int(line.split()[1])
    return kib / 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One run: bytes moved, seconds it took, CPU seconds of each process and requests to the bucket meanwhile."""

    moved_bytes: int
    wall_s: float
    cpu_s: Mapping[str, float]
    requests: int | None = None

    @property
    def mb_per_s(self) -> float:
        return self.moved_bytes / 1e6 / self.wall_s

    @property
    def cpu_s_per_gib(self) -> float:
        return sum(self.cpu_s.values()) / (self.moved_bytes / GIB)


def timed(work: Callable[[], int], pids: Mapping[str, int], requests: Callable[[], int] | None = None) -> Sample:
    """Run *work* (it gives the bytes it moved) and charge what each named process used meanwhile.

    *requests* counts what the bucket has answered so far.
    """
    asked = requests() if requests is not None else 0
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    start = time.perf_counter()
    moved = work()
    wall_s = time.perf_counter() - start
    cpu_s = {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}
    return Sample(moved, wall_s, cpu_s, requests() - asked if requests is not None else None)


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


def interleaved(
    runs: Mapping[str, Callable[[], Sample]],
    rounds: int,
    said: Callable[[str], None] = lambda _: None,
    told: Callable[[Sample], str] = lambda s: f"{s.mb_per_s:.0f} MB/s, {s.cpu_s_per_gib:.2f} CPU s/GiB",
) -> dict[str, list[Sample]]:
    """A B C A B C ...: drift of the machine hits all alike; one round before is not counted. *said* is told of each,
    in the words of *told*."""
    taken: dict[str, list[Sample]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in runs.items():
            sample = run()
            counted = f"round {number} of {rounds}" if number else "to warm up"
            said(f"{counted}: {name} {told(sample)}")
            if number:
                taken[name].append(sample)
    return taken
