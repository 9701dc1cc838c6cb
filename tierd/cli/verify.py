"""`tierd verify`: whether the bucket still has what it should have. Reads only; with a daemon or without one."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tierd.base.clock import SystemClock
from tierd.base.errors import TierdError, Usage
from tierd.base.exits import Exit, exit_of
from tierd.base.ids import Uuid
from tierd.cli.arguments import Bytes, Percent
from tierd.cli.client import Refused, ask
from tierd.cli.places import json_option, place_options
from tierd.cli.screen import print_json, size, verb_progress
from tierd.config.load import Options, load
from tierd.config.model import Settings
from tierd.config.state_files import VERIFY
from tierd.remote.keyring import load_ring
from tierd.remote.open import open_store
from tierd.storage.disk import PosixDisk
from tierd.tiering.verify import standing
from tierd.tiering.verify.run import Progress, Report, Verify
from tierd.tiering.verify.spending import Budget
from tierd.tiering.verify.standing import PartitionReport, Standing
from tierd.tiering.verify.verdicts import Range, Verdict

_THREADS = 4
_RANGES = 500
"""So many ranges in one request to the daemon."""


@click.command("verify")
@place_options
@click.option(
    "--remote", metavar="URL", help="A bucket, with or without a place here: s3://BUCKET/PREFIX/ or file:DIR."
)
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
@click.option("--deep", is_flag=True, help="Read every byte: each batch's CRC, the indexes against the log.")
@click.option("--sample", metavar="N%", type=Percent(), default="100", help="Look into N% of the segments only.")
@click.option("--budget-requests", metavar="N", type=click.IntRange(min=1), help="Stop before more requests.")
@click.option("--budget-bytes", metavar="N", type=Bytes(1), help="Stop before more bytes, such as 10GiB.")
@click.option("--resume", metavar="FILE", type=click.Path(path_type=Path), help="Keep here how far it has come.")
@click.option("--heal", is_flag=True, help="Let the daemon copy again what is damaged, where its disk has it.")
@click.option("--anew", is_flag=True, help="Begin again, though the last one is not finished.")
@json_option
def verify(
    config: Path | None,
    data: tuple[Path, ...],
    state: Path | None,
    remote: str | None,
    sets: tuple[str, ...],
    deep: bool,
    sample: float,
    budget_requests: int | None,
    budget_bytes: int | None,
    resume: Path | None,
    heal: bool,
    anew: bool,
    as_json: bool,
) -> int:
    """Look whether the bucket has all that it should have, and give a verdict on each range of offsets.

    Sizes, manifests, gaps, leader epochs, and CRC-32Cs as the bucket states them; with --deep all objects are read.
    Nothing is written to the bucket, no claim is needed. What a budget leaves over the next run looks at, and another
    sample. Exit code 1 when there is a FAILURE.
    """
    if heal and not (data or state or config):
        raise click.UsageError("--heal goes with the place of a tierd that runs: --data, --state or -c")
    with _settings(Options(config=config, data=data, state=state, remote=remote, sets=sets)) as (settings, here):
        url = settings.remote.url or _stored_url(settings)
        if url is None:
            raise Usage("say which bucket: --remote URL, or the place of a tierd that has one")
        file = resume or (settings.state_dir / VERIFY if here else None)
        report = _look(
            settings,
            Standing(url=url, deep=deep, percent=sample),
            Budget(budget_requests, budget_bytes),
            file,
            anew=anew,
        )
    if as_json:
        print_json(document(report))
    else:
        _show(report, resumable=file is not None)
    if heal:
        try:
            _heal(report, settings.control_socket)
        except TierdError as error:  # the report is on stdout: an error's document behind it would make both unreadable
            click.echo(f"tierd: {error}", err=True)
            return error.exit if isinstance(error, Refused) else exit_of(error)
    return Exit.FAILED if report.verdict is Verdict.FAILURE else Exit.DONE


def _heal(report: Report, socket: Path) -> None:
    """Tell the daemon where the failures are: it reads those segments itself before it believes it."""
    segments = 0
    for one in report.standing.reports:
        bad = [[found.start, found.stop] for found in one.ranges if found.verdict is Verdict.FAILURE]
        for at in range(0, len(bad), _RANGES):
            some = bad[at : at + _RANGES]
            reply = ask(socket, "look_into", topic_id=str(one.topic_id), partition=one.partition, ranges=some)
            segments += reply.result["segments"]
    click.echo(f"the daemon reads {segments} segments again; `tierd status` names what stays lost", err=True)


@contextmanager
def _settings(options: Options) -> Iterator[tuple[Settings, bool]]:
    """The settings, and whether there is a state directory; with a URL alone nothing here is looked at."""
    if options.data or options.state or options.config or options.remote is None:
        settings = load(options)
        yield settings, settings.state_dir.is_dir()
        return
    with TemporaryDirectory(prefix="tierd-") as nowhere:
        alone = Options(state=Path(nowhere), remote=options.remote, sets=options.sets)
        yield load(alone), False


def _stored_url(settings: Settings) -> str | None:
    from tierd.cli.offline import stored_url  # heavy, and needless for those who say which bucket

    return stored_url(settings)


def _look(settings: Settings, fresh: Standing, budget: Budget, file: Path | None, *, anew: bool) -> Report:
    clock, disk = SystemClock(), PosixDisk()

    def keep(now: Standing) -> None:
        if file is not None:
            standing.keep(disk, file, now)

    kept = None if file is None else standing.load(file)
    ring = load_ring(settings.remote.encryption.key_files)
    bucket = replace(open_store(fresh.url, settings.remote, disk=disk, clock=clock), ring=ring)
    try:
        with verb_progress("verify") as show:
            begun = standing.begin(kept, fresh, anew=anew)
            return Verify(bucket, clock, begun, budget=budget, threads=_THREADS, keep=keep, report=_shown(show)).run()
    finally:
        bucket.store.close()


def _shown(show: Callable[[Mapping[str, Any]], None]) -> Callable[[Progress], None]:
    def report(now: Progress) -> None:
        facts = {"segments_done": now.segments_done, "segments": now.segments, "bytes_done": now.bytes_done}
        show({**facts, "bytes": None, "detail": now.detail})

    return report


def document(report: Report) -> dict[str, Any]:
    """What --json prints; ends are exclusive."""
    now = report.standing
    return {
        "url": now.url,
        "archive_id": report.archive_id,
        "deep": now.deep,
        "sample_percent": now.percent,
        "verdict": report.verdict,
        "complete": report.complete,
        "requests": now.requests,
        "bytes": now.bytes,
        "problems": list(report.problems),
        "partitions": [_partition(one) for one in now.reports],
    }


def _partition(one: PartitionReport) -> dict[str, Any]:
    facts = {name: getattr(one, name) for name in ("topic", "partition", "log_start", "copied_to", "segments")}
    ranges = [asdict(found) for found in one.ranges]
    rest = {"topic_id": str(one.topic_id), "looked_into": one.looked_into, "verdict": one.verdict, "ranges": ranges}
    return facts | rest


def _show(report: Report, *, resumable: bool) -> None:
    now = report.standing
    for problem in report.problems:
        click.echo(f"{Verdict.FAILURE}: {problem}")
    ids: dict[str, set[Uuid]] = {}
    for one in now.reports:
        ids.setdefault(one.topic, set()).add(one.topic_id)
    for one in now.reports:
        which = f" (topic id {one.topic_id})" if len(ids[one.topic]) > 1 else ""  # of two that had one name
        for found in one.ranges:
            click.echo(f"{one.topic}-{one.partition}{which}: {_words(found)}")
    segments, looked_into = sum(one.segments for one in now.reports), sum(one.looked_into for one in now.reports)
    click.echo(
        f"{report.verdict}: {len(now.reports)} partitions, {looked_into} of {segments} segments looked into,"
        f" {now.requests} requests, {size(now.bytes)}"
    )
    if now.cursor is not None:
        at = f"{now.cursor.topic}-{now.cursor.partition}, offset {now.cursor.offset}"
        then = "the same command goes on from there" if resumable else "--resume FILE would go on from there"
        click.echo(f"not complete: the budget ended at {at}; {then}", err=True)


def _words(found: Range) -> str:
    what = f"{found.verdict}: offsets {found.start} to {found.stop - 1}"
    return f"{what}: {'; '.join(found.reasons)}" if found.reasons else what
