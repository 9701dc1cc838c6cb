"""Prints what was measured: medians with spread, ratios, CPU; as a table for people and JSON for scripts."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measure import spread
from bench.rows import Row


def lines(row: Row) -> list[dict[str, Any]]:
    """One dict a server: mb_per_s and cpu_s_per_gib as [low, median, high], the ratio of medians, CPU by process."""
    base = spread(s.mb_per_s for s in row.samples[row.baseline]).median
    out = []
    for name, samples in row.samples.items():
        speed, cpu = spread(s.mb_per_s for s in samples), spread(s.cpu_s_per_gib for s in samples)
        processes = {
            p: spread(s.cpu_s[p] / (s.moved_bytes / (1 << 30)) for s in samples).median for p in samples[0].cpu_s
        }
        out.append(
            {
                "row": row.name,
                "server": name,
                "mb_per_s": [speed.low, speed.median, speed.high],
                "ratio": speed.median / base,
                "cpu_s_per_gib": [cpu.low, cpu.median, cpu.high],
                "by_process": processes,
            }
        )
    return out


def show(rows: Sequence[Row], title: str, console: Console) -> None:
    table = Table("work", "server", "MB/s", "ratio", "CPU s/GiB", "by process", title=title)
    for row in rows:
        for line in lines(row):
            low, mid, high = line["mb_per_s"]
            cpu_low, cpu, cpu_high = line["cpu_s_per_gib"]
            processes = ", ".join(f"{k} {v:.2f}" for k, v in line["by_process"].items())
            speed, cost = f"{mid:.0f} ({low:.0f}-{high:.0f})", f"{cpu:.2f} ({cpu_low:.2f}-{cpu_high:.2f})"
            table.add_row(line["row"], line["server"], speed, f"{line['ratio']:.2f}", cost, processes)
        table.add_section()
    console.print(table)


def as_json(rows: Sequence[Row]) -> str:
    return json.dumps([line for row in rows for line in lines(row)], indent=1)
