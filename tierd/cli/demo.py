"""`tierd demo`: a whole tierd with a directory as the bucket, fed, tiered, read back and checked before your eyes."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from tierd.base.errors import TierdError
from tierd.cli.client import ask
from tierd.cli.daemon_process import DaemonProcess
from tierd.cli.places import json_option
from tierd.cli.screen import byte_bars, print_json, size, stderr
from tierd.config.topic import MIB
from tierd.config.units import show_bytes

TOPIC = "demo"
LEAVE_TIMEOUT_S = 120
_LOOK_S = 0.3


class DemoFailed(TierdError):
    """The demo cannot run, or saw something that must not be."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How much data, cut so small that every partition has segments to spare."""

    records: int
    partitions: int
    record_bytes: int

    @property
    def segment_bytes(self) -> int:
        return min(max(self.records * self.record_bytes // self.partitions // 8, MIB), 16 * MIB)

    @property
    def kept_local_bytes(self) -> int:
        return 2 * self.segment_bytes


@click.command("demo")
@click.option(
    "--mib", default=256, show_default=True, type=click.IntRange(16, 1 << 20), help="Data to produce, in MiB."
)
@click.option(
    "--dir", "place", metavar="DIR", type=click.Path(path_type=Path), help="Work in this empty directory and keep it."
)
@json_option
def demo(mib: int, place: Path | None, as_json: bool) -> int:
    """Start tierd, produce with a Kafka client, watch segments move to the bucket, read all back, check each byte.

    Needs the client: pip install 'tierd[demo]'.
    """
    try:
        from tierd.cli import demo_traffic as traffic
    except ModuleNotFoundError as error:
        raise DemoFailed("the demo needs a Kafka client: pip install 'tierd[demo]'") from error
    plan = _Plan(mib * MIB // traffic.RECORD_BYTES, traffic.PARTITIONS, traffic.RECORD_BYTES)
    with _workplace(place) as directory, _daemon(directory, plan) as daemon, byte_bars() as bars:
        report = _Run(daemon, plan, bars).report()
    if as_json:
        print_json(report)
    else:
        _show(report)
    return 0


@contextmanager
def _workplace(place: Path | None) -> Iterator[Path]:
    if place is None:
        directory = Path(tempfile.mkdtemp(prefix="tierd-demo-"))
        try:
            yield directory
        finally:
            shutil.rmtree(directory)
        return
    place.mkdir(parents=True, exist_ok=True)
    if any(place.iterdir()):
        raise click.UsageError(f"{place} is not empty")
    yield place.resolve()


def _daemon(directory: Path, plan: _Plan) -> DaemonProcess:
    sets = {
        "num.partitions": str(plan.partitions),
        "segment.bytes": str(plan.segment_bytes),
        "local.retention.bytes": str(plan.kept_local_bytes),
        "log.retention.check.interval.ms": "500ms",
    }
    _tell(f"tierd serve, data in {directory / 'data'}, bucket {directory / 'bucket'}")
    _tell(f"{plan.partitions} partitions, segments of {show_bytes(plan.segment_bytes)}, two kept on the disk each")
    return DaemonProcess(
        directory / "data", remote=f"file:{directory / 'bucket'}", log=directory / "tierd.log", sets=sets
    )


class _Run:
    """The steps of the demo, with a bar each for what goes in, what lies in either tier, and what comes out."""

    def __init__(self, daemon: DaemonProcess, plan: _Plan, bars: Progress) -> None:
        self._daemon = daemon
        self._plan = plan
        self._bars = bars
        self._total = plan.records * plan.record_bytes
        self._looked_s = 0.0
        self._in = bars.add_task("produced", total=self._total, detail="")
        self._bucket = bars.add_task("in the bucket", total=self._total, detail="")
        self._disk = bars.add_task("on the disk", total=self._total, detail="")
        self._out = bars.add_task("read back", total=self._total, detail="")

    def report(self) -> dict[str, Any]:
        from tierd.cli import demo_traffic as traffic

        started_s = time.monotonic()
        traffic.produce(self._daemon.address, TOPIC, self._plan.records, self._produced)
        self._bars.update(self._in, completed=self._total)
        produced_s = time.monotonic()
        self._tell(f"produced {size(self._total)}, {self._plan.records} records")
        ask(self._daemon.control, "copy", wait=True, roll=True, timeout_ms=None, on_progress=lambda _: self._look())
        rows = self._wait_until_left()
        tiered_s = time.monotonic()
        self._tell("all of it is in the bucket; the disk kept the newest")
        starts = {row["partition"]: row["local_start"] for row in rows}
        read = traffic.consume(self._daemon.address, TOPIC, self._plan.records, starts, self._read)
        return {
            "records": self._plan.records,
            "bytes": self._total,
            "partitions": rows,
            "from_bucket": {"records": read.remote_records, "bytes": read.remote_bytes},
            "from_disk": {"records": read.local_records, "bytes": read.local_bytes},
            "seconds": {
                "produce": round(produced_s - started_s, 3),
                "read": round(time.monotonic() - tiered_s, 3),
            },
        }

    def _tell(self, text: str) -> None:
        self._bars.console.print(text, highlight=False)  # above the bars, not through them

    def _produced(self, done_bytes: int) -> None:
        self._bars.update(self._in, completed=done_bytes)
        self._look()

    def _read(self, done_bytes: int) -> None:
        self._bars.update(self._out, completed=done_bytes)

    def _look(self) -> None:
        if time.monotonic() - self._looked_s >= _LOOK_S:
            self._rows()

    def _rows(self) -> list[dict[str, Any]]:
        answer = ask(self._daemon.control, "status").result["partitions"]
        rows = sorted((row for row in answer if row["topic"] == TOPIC), key=lambda row: int(row["partition"]))
        self._bars.update(self._bucket, completed=sum(row["remote_bytes"] or 0 for row in rows))
        self._bars.update(self._disk, completed=sum(row["local_bytes"] for row in rows))
        self._looked_s = time.monotonic()
        return rows

    def _wait_until_left(self) -> list[dict[str, Any]]:
        """Until everything is copied, and no partition has more on the disk than it may. Raises DemoFailed."""
        limit = self._plan.kept_local_bytes + self._plan.segment_bytes
        deadline_s = time.monotonic() + LEAVE_TIMEOUT_S
        while True:
            rows = self._rows()
            late = [row for row in rows if row["local_bytes"] > limit or row["copied_to"] != row["log_end"]]
            if rows and not late:
                return rows
            if time.monotonic() > deadline_s:
                raise DemoFailed(f"still not in the bucket or off the disk after {LEAVE_TIMEOUT_S} s: {late}")
            time.sleep(_LOOK_S)


def _show(report: dict[str, Any]) -> None:
    table = Table(title="What lay where while it was read", title_justify="left", box=None, pad_edge=False)
    for name in ("partition", "offsets only in the bucket", "offsets in both", "local", "remote"):
        table.add_column(name, justify="left" if name == "partition" else "right")
    for row in report["partitions"]:
        table.add_row(
            f"{row['topic']}-{row['partition']}",
            f"{row['log_start']} to {row['local_start']}",
            f"{row['local_start']} to {row['log_end']}",
            size(row["local_bytes"]),
            size(row["remote_bytes"]),
        )
    Console().print(table)
    bucket, disk = report["from_bucket"], report["from_disk"]
    click.echo(
        f"read back {report['records']} records, each byte as it was sent: "
        f"{bucket['records']} ({size(bucket['bytes'])}) from the bucket, "
        f"{disk['records']} ({size(disk['bytes'])}) from the disk"
    )


def _tell(text: str) -> None:
    stderr().print(text, highlight=False, soft_wrap=True)
