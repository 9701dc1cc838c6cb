"""How long opening takes: recovery after an unclean stop, and a start with very many closed segments.

tierd and a real Kafka open copies of the same partition directory. Each start finds it as an unclean stop left it, with
the recovery point that the row wants; it ends by SIGKILL.
"""

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench import rawclient, servers
from bench.measure import MIB, Sample, cpu_seconds, interleaved, private_mib
from bench.rows import T0_MS, Row, Run, batch_of
from kit import kafka as kafka_kit
from kit.daemon import Daemon
from tierd.base.clock import SystemClock
from tierd.base.ids import TopicPartition, Uuid
from tierd.config.topic import TopicSettings
from tierd.storage import names
from tierd.storage.checkpoints import encode_checkpoint, parse_checkpoint
from tierd.storage.directory import LogDirectory
from tierd.storage.disk import PosixDisk, PosixFile
from tierd.storage.names import Suffix, parse_segment_file

TP = TopicPartition("opened", 0)
BATCH_BYTES = 16 * 1024
_TIERD_SAYS = re.compile(r"logs opened .* took_ms=(\d+)")
_KAFKA_SAYS = re.compile(r"Loaded \d+ logs in (\d+)ms")


class Opening(Protocol):
    """A server that is started and killed again and again on the same directory."""

    @property
    def data(self) -> Path: ...

    @property
    def log(self) -> Path: ...

    @property
    def pid(self) -> int: ...

    def start(self) -> object:
        """Return when it answers clients."""

    def kill(self) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Starts:
    """Starts until the ready line; `moved_bytes` of a sample is what the process has read with system calls."""

    name: str
    samples: Mapping[str, Sequence[Sample]]
    private_mib: Mapping[str, Mapping[str, float]]


def recovery(run: Run) -> Row:
    """Everything is read again, recovery point 0. Seconds as both say them of opening their logs, CPU of the start."""
    place = run.place / "recovery"
    with servers.tierd(place) as filled:
        filled.create(TP.topic)
        rawclient.produce(filled.address, TP.topic, batch_of(BATCH_BYTES), run.total_bytes)
    memory: dict[str, dict[str, float]] = {}

    def runs_of(name: str, process: str, server: Opening, says: re.Pattern[str]) -> Callable[[], Sample]:
        size_bytes = sum(path.stat().st_size for path in _logs(server.data))

        def opened() -> Sample:
            _unclean(server.data, 0)
            if run.cold:
                _drop_from_cache(server.data)
            said_before = server.log.stat().st_size if server.log.exists() else 0
            server.start()
            cpu_s = {process: cpu_seconds(server.pid)}
            memory[name] = {process: private_mib(server.pid)}
            server.kill()
            took_ms = int(says.findall(server.log.read_text()[said_before:])[-1])
            return Sample(size_bytes, max(took_ms, 1) / 1000, cpu_s)

        return opened

    with ExitStack() as stack:
        runs = {}
        kafka = _kafka(stack, run, run.place / "recovery-kafka", place / "data")
        if kafka is not None:
            runs[servers.KAFKA] = runs_of(servers.KAFKA, "kafka", kafka, _KAFKA_SAYS)
        runs = {"tierd": runs_of("tierd", "broker", _tierd(stack, place / "data"), _TIERD_SAYS), **runs}
        samples = interleaved(runs, run.rounds, lambda text: run.said(f"recovery, {text}"))
    cache = "cold" if run.cold else "warm"
    return Row(name=f"recovery, 16 KiB batches, {cache}", bare=None, samples=samples, private_mib=memory)


def many_segments(run: Run) -> Starts:
    """The recovery point is where the active segment begins: closed segments need not be read. Beside it, what a start
    costs with a single closed segment."""
    memory: dict[str, dict[str, float]] = {}

    def runs_of(name: str, process: str, server: Opening) -> Callable[[], Sample]:
        def started() -> Sample:
            _unclean(server.data, max(_bases(server.data)))
            begun = time.perf_counter()
            server.start()
            wall_s = time.perf_counter() - begun
            sample = Sample(_read_bytes(server.pid), wall_s, {process: cpu_seconds(server.pid)})
            memory[name] = {process: private_mib(server.pid)}
            server.kill()
            return sample

        return started

    with ExitStack() as stack:
        runs: dict[str, Callable[[], Sample]] = {}
        for count in (run.segments, 1):
            place = run.place / f"segments-{count}"
            run.said(f"writing {count:,} segments")
            write_segments(place / "data", count)
            kafka = _kafka(stack, run, place / "kafka", place / "data")
            named = "" if count == run.segments else ", 1 closed segment"
            runs[f"tierd{named}"] = runs_of(f"tierd{named}", "broker", _tierd(stack, place / "data"))
            if kafka is not None:
                runs[servers.KAFKA + named] = runs_of(servers.KAFKA + named, "kafka", kafka)
        samples = interleaved(runs, run.rounds, lambda text: run.said(f"start, {text}"), _told)
    return Starts(name=f"start, {run.segments:,} closed segments", samples=samples, private_mib=memory)


def _told(sample: Sample) -> str:
    return f"{sample.wall_s:.2f} s, {sample.moved_bytes / MIB:.1f} MiB read"


def _tierd(stack: ExitStack, data: Path) -> Daemon:
    daemon = Daemon(data)
    stack.callback(daemon.kill)
    return daemon


def _kafka(stack: ExitStack, run: Run, home: Path, source: Path) -> kafka_kit.Kafka | None:
    if not run.with_kafka or not servers.has_kafka():
        return None
    kafka = kafka_kit.Kafka(home, {}, (*servers.KAFKA_JVM, *kafka_kit.LOADING))
    kafka_kit.fill(kafka, source, [TP.topic])
    stack.callback(kafka.kill)
    return kafka


def _logs(data: Path) -> list[Path]:
    return sorted((data / names.partition_directory(TP)).glob(f"*{Suffix.LOG}"))


def _bases(data: Path) -> Iterator[int]:
    files = (parse_segment_file(path.name) for path in _logs(data))
    return (file.offset for file in files if file is not None)


def _unclean(data: Path, recovery_point: int) -> None:
    """As a directory is found after an unclean stop."""
    (data / names.CLEAN_SHUTDOWN).unlink(missing_ok=True)
    path = data / names.RECOVERY_POINT_CHECKPOINT
    points = parse_checkpoint(path.read_bytes(), str(path)) if path.exists() else {}
    path.write_bytes(encode_checkpoint({**points, TP: recovery_point}))


def _drop_from_cache(data: Path) -> None:
    for path in _logs(data):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _read_bytes(pid: int) -> int:
    """What a process has read so far, from wherever; mapped files do not count."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("rchar:"))


# -- a log with very many segments --


class _Hasty(PosixDisk):
    """Waits for no disk: what it writes is thrown away after the run."""

    def open(self, path: Path, *, create: bool = False) -> PosixFile:
        return _HastyFile(super().open(path, create=create).fd, path)

    def fsync_file(self, path: Path) -> None:
        return

    def fsync_dir(self, path: Path) -> None:
        return


class _HastyFile(PosixFile):
    def fsync(self) -> None:
        return


@contextmanager
def _directory(data: Path) -> Iterator[LogDirectory]:
    directory = LogDirectory.open(
        data,
        _Hasty(),
        SystemClock(),
        settings_for=lambda _: TopicSettings(),
        node_id=kafka_kit.NODE_ID,
        cluster_id=None,
        set_aside=data.with_name("set-aside"),
        reserve_bytes=0,
    )
    try:
        yield directory
    finally:
        directory.close(clean=True)


def write_segments(data: Path, count: int) -> None:
    """A partition of *count* closed segments of one small batch each, and an active one."""
    batch = batch_of(2048)
    with _directory(data) as directory:
        log = directory.create(TP, Uuid(os.urandom(16)), TopicSettings())
        log.begin(0, 0)
        for _ in range(count):
            log.append(memoryview(bytearray(batch)), now_ms=T0_MS)
            log.roll()
        log.append(memoryview(bytearray(batch)), now_ms=T0_MS)
