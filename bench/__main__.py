"""`python -m bench [ROW...]`: measure tierd, bare loops and a real Kafka in one interleaved run."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import click

from bench import bucket_rows, cleaning_rows, crowd_rows, opening_rows, rows, servers, table
from bench.measure import MIB, Others
from bench.rows import Row, Run
from bench.servers import Server

LocalRow = Callable[[list[Server], Run], Row]
OwnRow = Callable[[Run], table.AnyRow | Sequence[table.AnyRow]]

LOCAL: dict[str, LocalRow] = {
    "produce-64k": lambda them, run: rows.produce(them, run, 64 * 1024),
    "produce-1m": lambda them, run: rows.produce(them, run, MIB),
    "librdkafka-64k": lambda them, run: rows.produce_librdkafka(them, run, 64 * 1024),
    "librdkafka-1m": lambda them, run: rows.produce_librdkafka(them, run, MIB),
    "fetch-1m": lambda them, run: rows.local_fetch(them, run, MIB),
    "fetch-8m": lambda them, run: rows.local_fetch(them, run, 8 * MIB),
    "fetch-50m": lambda them, run: rows.local_fetch(them, run, 50 * MIB),
}
OWN: dict[str, OwnRow] = {
    "recovery": opening_rows.recovery,
    "start": opening_rows.many_segments,
    "compaction-100": lambda run: cleaning_rows.compaction(run, 100),
    "compaction-1k": lambda run: cleaning_rows.compaction(run, 1024),
    "upload": bucket_rows.upload,
    "cold": bucket_rows.cold_sequential,
    "first": bucket_rows.cold_first,
    "crowd-produce": lambda run: crowd_rows.crowds(run, "produce"),
    "crowd-fetch": lambda run: crowd_rows.crowds(run, "fetch"),
    "crowd-produce-tls": lambda run: crowd_rows.crowds(run, "produce", tls=True),
    "crowd-fetch-tls": lambda run: crowd_rows.crowds(run, "fetch", tls=True),
}
"""Rows that start servers of their own."""
NAMES = [*LOCAL, *OWN]


@click.command()
@click.argument("names", metavar="[ROW]...", nargs=-1, type=click.Choice(NAMES))
@click.option("--rounds", default=3, show_default=True, help="Counted ones; one more comes before.")
@click.option("--mib", default=512, show_default=True, help="MiB moved by each server in each round.")
@click.option("--kafka/--no-kafka", default=True, help="A real Kafka beside it (Java 17 and Maven); by default on.")
@click.option("--cold", is_flag=True, help="Recovery finds nothing in the page cache.")
@click.option("--segments", default=10_000, show_default=True, help="Closed ones that the row `start` finds.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there.")
@click.option("--place", type=click.Path(file_okay=False, path_type=Path), help="Where data goes; by default /tmp.")
def main(
    names: Sequence[str],
    rounds: int,
    mib: int,
    kafka: bool,
    cold: bool,
    segments: int,
    json_file: Path | None,
    place: Path | None,
) -> None:
    """Measure what ROWs ask for (all of them by default); progress on stderr, the table on stdout."""
    wanted = [name for name in NAMES if name in names or not names]
    others = Others()
    folder = Path(tempfile.mkdtemp(prefix="tierd-bench-", dir=place))
    run = Run(folder, mib * MIB, rounds, lambda text: click.echo(text, err=True), kafka, cold, segments)
    try:
        measured: list[table.AnyRow] = [*_local(wanted, run)]
        for name in wanted:
            if name in OWN:
                found = OWN[name](run)
                measured += found if isinstance(found, Sequence) else [found]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    machine = f"{servers.machine()}. {rounds} rounds of {mib} MiB; others had {others.percent():.0f} % of the CPU."
    click.echo(f"{machine}\n\n{table.markdown(measured)}")
    if json_file is not None:
        json_file.write_text(table.as_json(measured, machine) + "\n")


def _local(wanted: Sequence[str], run: Run) -> list[Row]:
    """One tierd without a bucket and one Kafka for all of these rows."""
    wanted = [name for name in wanted if name in LOCAL]
    if not wanted:
        return []
    with ExitStack() as stack:
        them = [stack.enter_context(servers.tierd(run.place / "local"))]
        kafka = stack.enter_context(servers.kafka(run.place / "kafka")) if run.with_kafka else None
        if kafka is not None:
            run.said("Kafka's first GiB, to warm it up")
            rows.warm_up(kafka)
            them.append(kafka)
        elif run.with_kafka:
            run.said("no Kafka: Java 17 or Maven is missing")
        return [LOCAL[name](them, run) for name in wanted]


if __name__ == "__main__":
    main()
