"""Prints what was measured: medians with spread, ratios, CPU, requests, memory. A table, and JSON for scripts."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bench import crowd_rows
from bench.bucket_rows import Waits
from bench.crowd import PERCENTILES
from bench.crowd_rows import Crowd
from bench.measure import GIB, MIB, Sample, spread
from bench.opening_rows import Starts
from bench.rows import Row
from bench.servers import KAFKA


def throughput(row: Row) -> list[dict[str, Any]]:
    """One dict a server: mb_per_s and cpu_s_per_gib as [low, median, high], ratios of the medians, and the rest."""
    medians = {name: spread(s.mb_per_s for s in samples).median for name, samples in row.samples.items()}
    out = []
    for name, samples in row.samples.items():
        speed, cpu = spread(s.mb_per_s for s in samples), spread(s.cpu_s_per_gib for s in samples)
        out.append(
            {
                "row": row.name,
                "server": name,
                "mb_per_s": [speed.low, speed.median, speed.high],
                "of_bare": _ratio(medians, name, row.bare),
                "of_kafka": _ratio(medians, name, KAFKA),
                "cpu_s_per_gib": [cpu.low, cpu.median, cpu.high],
                "cpu_by_process": _by_process(samples),
                "requests_per_gib": _requests(samples),
                "private_mib": dict(row.private_mib.get(name, {})),
            }
        )
    return out


def _ratio(medians: Mapping[str, float], name: str, base: str | None) -> float | None:
    return None if base is None or base == name or base not in medians else medians[name] / medians[base]


def _by_process(samples: Sequence[Sample]) -> dict[str, float]:
    return {p: spread(s.cpu_s[p] / (s.moved_bytes / GIB) for s in samples).median for p in samples[0].cpu_s}


def _requests(samples: Sequence[Sample]) -> float | None:
    counted = [s.requests / (s.moved_bytes / GIB) for s in samples if s.requests is not None]
    return spread(counted).median if counted else None


def waits(row: Waits) -> list[dict[str, Any]]:
    """One dict a server: p50 and p99 in ms, and the ratio of the p50s to the bare one."""
    middles = {name: percentile(taken, 0.5) for name, taken in row.ms.items()}
    return [
        {
            "row": row.name,
            "server": name,
            "count": len(taken),
            "p50_ms": middles[name],
            "p99_ms": percentile(taken, 0.99),
            "of_bare": _ratio(middles, name, row.bare),
        }
        for name, taken in row.ms.items()
    ]


def starts(row: Starts) -> list[dict[str, Any]]:
    """One dict a server: seconds until ready and CPU seconds as [low, median, high], MiB read, memory."""
    out = []
    for name, samples in row.samples.items():
        wall, cpu = spread(s.wall_s for s in samples), spread(sum(s.cpu_s.values()) for s in samples)
        out.append(
            {
                "row": row.name,
                "server": name,
                "ready_s": [wall.low, wall.median, wall.high],
                "read_mib": spread(s.moved_bytes / MIB for s in samples).median,
                "cpu_s": [cpu.low, cpu.median, cpu.high],
                "private_mib": dict(row.private_mib.get(name, {})),
            }
        )
    return out


def percentile(taken: Sequence[float], share: float) -> float:
    ordered = sorted(taken)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


AnyRow = Row | Waits | Starts | Crowd


def markdown(rows: Sequence[AnyRow]) -> str:
    """One table for what was moved, one for what was waited for, one for starts; as a page can take them."""
    moved = [_moved(line) for row in rows if isinstance(row, Row) for line in throughput(row)]
    waited = [_waited(line) for row in rows if isinstance(row, Waits) for line in waits(row)]
    started = [_started(line) for row in rows if isinstance(row, Starts) for line in starts(row)]
    crowded = [_crowded(line) for row in rows if isinstance(row, Crowd) for line in crowd_rows.lines(row)]
    tables = ((_MOVED, moved), (_WAITED, waited), (_STARTED, started), (_CROWDED, crowded))
    return "\n\n".join(_table(head, lines) for head, lines in tables if lines)


_STARTED = ("work", "server", "s until ready", "MiB read", "CPU s", "private MiB")
_MOVED = ("work", "server", "MB/s", "x bare", "x Kafka", "CPU s/GiB", "by process", "requests/GiB", "private MiB")
_CROWDED = ("work", "connections", "server", "answers/s", "p50 ms", "p99 ms", "p99.9 ms", "CPU us/answer")
_WAITED = ("work", "server", "reads", "p50 ms", "p99 ms", "x bare")


def _moved(line: Mapping[str, Any]) -> list[str]:
    return [
        line["row"],
        line["server"],
        _spread(line["mb_per_s"], 0),
        _number(line["of_bare"], 2),
        _number(line["of_kafka"], 2),
        _spread(line["cpu_s_per_gib"], 2),
        _processes(line["cpu_by_process"], 2),
        _number(line["requests_per_gib"], 0),
        _processes(line["private_mib"], 0),
    ]


def _waited(line: Mapping[str, Any]) -> list[str]:
    middle, late = _number(line["p50_ms"], 1), _number(line["p99_ms"], 1)
    return [line["row"], line["server"], str(line["count"]), middle, late, _number(line["of_bare"], 2)]


def _crowded(line: Mapping[str, Any]) -> list[str]:
    waited = [_number(line[f"p{percent:g}_ms"], 2) for percent in PERCENTILES]
    speed, spent = _number(line["per_s"], 0), _number(line["cpu_us"], 0)
    return [line["row"], str(line["connections"]), line["server"], speed, *waited, spent]


def _started(line: Mapping[str, Any]) -> list[str]:
    return [
        line["row"],
        line["server"],
        _spread(line["ready_s"], 2),
        _number(line["read_mib"], 1),
        _spread(line["cpu_s"], 2),
        _processes(line["private_mib"], 0),
    ]


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines])


def _spread(values: Sequence[float], digits: int) -> str:
    low, middle, high = values
    return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _processes(values: Mapping[str, float], digits: int) -> str:
    if not values:
        return ""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())


def as_json(rows: Sequence[AnyRow], machine: str) -> str:
    return json.dumps({"machine": machine, "rows": [line for row in rows for line in _lines(row)]}, indent=1)


def _lines(row: AnyRow) -> list[dict[str, Any]]:
    match row:
        case Row():
            return throughput(row)
        case Waits():
            return waits(row)
        case Starts():
            return starts(row)
        case Crowd():
            return crowd_rows.lines(row)
