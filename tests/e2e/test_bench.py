"""`python -m bench` measures what it says, and its table holds what was measured."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import crowd_rows
from bench.bucket_rows import Waits
from bench.measure import GIB, MIB, Sample, interleaved, timed
from bench.opening_rows import Starts
from bench.rows import Row, Run, batch_of
from bench.servers import KAFKA
from bench.table import as_json, markdown, starts, throughput, waits
from tierd.storage.batch import check_crc, parse_header

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.e2e
def test_a_small_run_of_the_command(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ["produce-64k", "fetch-1m", "--no-kafka", "--mib", "8", "--rounds", "1", "--json", str(figures)]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words, "--place", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| produce, 64 KiB batches" in done.stdout
    assert "round 1 of 1: tierd" in done.stderr
    written = json.loads(figures.read_text())
    assert written["machine"] in done.stdout
    assert [(line["row"], line["server"]) for line in written["rows"]] == [
        ("produce, 64 KiB batches", "bare loop"),
        ("produce, 64 KiB batches", "tierd"),
        ("local fetch, 1 MiB", "bare loop"),
        ("local fetch, 1 MiB", "bare event loop"),
        ("local fetch, 1 MiB", "tierd"),
    ]
    assert all(line["mb_per_s"][1] > 0 and line["cpu_s_per_gib"][1] > 0 for line in written["rows"])
    assert not list(tmp_path.glob("tierd-bench-*"))


@pytest.mark.e2e
@pytest.mark.full
def test_small_runs_of_opening_and_cleaning(tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    words = ["recovery", "start", "compaction-1k", "--no-kafka", "--cold", "--segments", "20", "--mib", "130"]
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words, "--rounds", "1", "--json", str(figures), "--place", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    recovery, many, one, cleaned = json.loads(figures.read_text())["rows"]
    assert recovery["row"] == "recovery, 16 KiB batches, cold"
    assert recovery["mb_per_s"][1] > 0
    assert (cleaned["row"], set(cleaned["cpu_by_process"])) == ("compaction, 1024 B records", {"broker", "worker"})
    assert (many["row"], one["server"]) == ("start, 20 closed segments", "tierd, 1 closed segment")
    assert many["ready_s"][1] > 0
    assert many["read_mib"] - one["read_mib"] < 1


def test_lines_are_medians_and_ratios_of_medians() -> None:
    def sample(seconds: float, cpu_s: float) -> Sample:
        return Sample(GIB, seconds, {"broker": cpu_s, "tierer": 2 * cpu_s}, requests=150)

    row = Row(
        name="upload",
        bare="bare PUT",
        samples={
            "bare PUT": [Sample(GIB, 1.0, {"bare": 0.5})],
            "tierd": [sample(4.0, 0.1), sample(2.0, 0.2), sample(1.0, 0.3)],
            KAFKA: [Sample(GIB, 8.0, {"kafka": 4.0})],
        },
        private_mib={"tierd": {"broker": 60.0}},
    )
    bare, tierd, kafka = throughput(row)
    assert bare["of_bare"] is None
    assert tierd["of_bare"] == pytest.approx(0.5)
    assert tierd["of_kafka"] == pytest.approx(4)
    assert kafka["of_kafka"] is None
    assert tierd["mb_per_s"] == pytest.approx([GIB / 4e6, GIB / 2e6, GIB / 1e6])
    assert tierd["cpu_s_per_gib"] == pytest.approx([0.3, 0.6, 0.9])
    assert tierd["cpu_by_process"] == pytest.approx({"broker": 0.2, "tierer": 0.4})
    assert tierd["requests_per_gib"] == pytest.approx(150)
    assert tierd["private_mib"] == {"broker": 60.0}

    first = Waits(name="first", bare="GET", ms={"GET": [float(n) for n in range(100)], "tierd": [99.0, 100.0, 101.0]})
    get, ours = waits(first)
    assert (get["p50_ms"], get["p99_ms"]) == (50, 99)
    assert (ours["p50_ms"], ours["of_bare"]) == (100, 2)
    begun = Starts(
        name="start",
        samples={"tierd": [Sample(MIB * n, float(n), {"broker": 2.0 * n}) for n in (1, 2, 4)]},
        private_mib={"tierd": {"broker": 40.0}},
    )
    (line,) = starts(begun)
    assert (line["ready_s"], line["cpu_s"], line["read_mib"]) == ([1, 2, 4], [2, 4, 8], 2)
    assert "| start | tierd | 2.00 (1.00-4.00) | 2.0 | 4.00 (2.00-8.00) | broker 40 |" in markdown([begun])
    assert len(json.loads(as_json([row, first, begun], "a machine"))["rows"]) == 6


def test_rounds_are_interleaved_and_the_first_does_not_count() -> None:
    order: list[str] = []

    def run(name: str) -> Sample:
        order.append(name)
        return timed(lambda: MIB, {}, lambda: len(order))

    taken = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, 2)
    assert order == ["a", "b"] * 3
    assert [len(samples) for samples in taken.values()] == [2, 2]
    assert taken["a"][0].requests == 0


@pytest.mark.parametrize("size", [64 * 1024, MIB])
def test_batches_are_as_large_as_they_say(size: int) -> None:
    raw = memoryview(bytearray(batch_of(size)))
    header = parse_header(raw)
    assert 0.95 * size < len(raw) <= size
    assert header.size_bytes == len(raw)
    assert header.count > 60
    assert check_crc(raw, 0, len(raw))


@pytest.mark.e2e
@pytest.mark.parametrize(("kind", "tls"), [("produce", False), ("fetch", True)])
def test_many_connections_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tls: bool) -> None:
    monkeypatch.setattr(crowd_rows, "CONNECTIONS", (1, 20))
    monkeypatch.setattr(crowd_rows, "WARM_SECONDS", 0.2)
    monkeypatch.setattr(crowd_rows.Work.ask, "__kwdefaults__", {"kind": None, "seconds": 0.2})
    run = Run(tmp_path, MIB, 1, lambda text: None, with_kafka=False)
    found = crowd_rows.crowds(run, kind, tls=tls)
    shown = [line for row in found for line in crowd_rows.lines(row)]
    assert [(line["connections"], line["server"]) for line in shown] == [
        (count, server) for count in (1, 20) for server in (crowd_rows.BARE, "tierd")
    ]
    assert all(0 < line["p50_ms"] <= line["p99_ms"] <= line["p99.9_ms"] and line["cpu_us"] > 0 for line in shown)
    assert "CPU us/answer" in markdown(found)
    assert len(json.loads(as_json(found, "m"))["rows"]) == 4
