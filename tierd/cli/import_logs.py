"""`tierd import`: log directories of a Kafka, copied into a bucket without a broker."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from tierd.base.clock import SystemClock
from tierd.base.errors import StartRefused
from tierd.base.exits import Exit
from tierd.base.ids import ID_BYTES, Uuid
from tierd.cli.alone import alone_in
from tierd.cli.import_views import Left, look
from tierd.cli.offline import check_there
from tierd.cli.places import dry_run_option, json_option
from tierd.cli.screen import print_json, size, verb_progress
from tierd.config.load import Options, load
from tierd.config.model import Settings
from tierd.config.state_files import CATALOG, REGISTRY
from tierd.remote.keyring import load_ring
from tierd.remote.open import limits_of, open_store
from tierd.storage.disk import PosixDisk
from tierd.storage.folders import make_folder
from tierd.storage.view import PartitionView, SegmentView
from tierd.tiering.catalog import Catalog
from tierd.tiering.forecast import copy_requests
from tierd.tiering.options import TiererOptions
from tierd.tiering.plan import uncopied
from tierd.tiering.verbs import Outcome, VerbProgress, VerbResult

_HOLDER = "import_id"
_PATH = click.Path(path_type=Path)
_EXITS = {Outcome.DONE: Exit.DONE, Outcome.PINNED: Exit.PINNED}
_EXITS |= dict.fromkeys((Outcome.UNAVAILABLE, Outcome.LOST), Exit.BUCKET_SILENT)


@click.command("import")
@click.option("--from", "sources", metavar="DIR", type=_PATH, multiple=True, required=True,
              help="A log directory of Kafka, only read; may be repeated.")  # fmt: skip
@click.option("--remote", metavar="URL", required=True, help="The bucket: s3://BUCKET/PREFIX/ or file:DIR.")
@click.option("--state", metavar="DIR", type=_PATH, required=True, help="Where it is noted how far the import is.")
@click.option(
    "--topic", "topics", metavar="PATTERN", multiple=True, help="Only such topics (orders-*); may be repeated."
)
@click.option("--active", is_flag=True, help="Active segments, too, of a Kafka that was stopped cleanly, for good.")
@click.option("-c", "--config", metavar="FILE", type=_PATH, help="tierd.toml.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
@dry_run_option
@json_option
def import_logs(
    sources: tuple[Path, ...],
    remote: str,
    state: Path,
    topics: tuple[str, ...],
    active: bool,
    config: Path | None,
    sets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Copy all closed segments of a Kafka's log directories into a bucket, for `tierd archive` and all that reads it.

    Nothing is written to the directories; the Kafka may run. Segments at or above the first offset of an open
    transaction, or not flushed, are left for a later import, as the active ones are. The same command goes on where an
    earlier one has ended, however it did. The bucket belongs to the state directory then: one that somebody else has
    claimed is refused.

    Exit code 3 when more than active ones is left, 1 when a partition cannot be imported; the others are.
    """
    settings = load(Options(config=config, state=state, remote=remote, sets=sets))
    if (settings.state_dir / REGISTRY).exists():
        raise StartRefused(f"{settings.state_dir} is a tierd's state directory: say another --state")
    directories = tuple(one.absolute() for one in sources)
    check_there(directories)
    if dry_run:
        return _dry_run(settings, directories, topics, active=active, as_json=as_json)
    make_folder(PosixDisk(), settings.state_dir)
    with alone_in(settings.state_dir, "another import runs there"), verb_progress("import") as show:

        def report(now: VerbProgress) -> None:
            show(asdict(now) | {"detail": ""})

        catalog = Catalog.open(settings.state_dir / CATALOG)
        try:
            views, left = look(directories, topics, _layers(settings), catalog, active=active)
        except BaseException:
            catalog.close()
            raise
        result = asyncio.run(_import(settings, catalog, views, report))
    document = _document(settings, result.segments, result.bytes, _left(result, left), dry_run=False) | _active(views)
    if as_json:
        print_json(document | {"outcome": result.outcome.value, "detail": result.detail})
    else:
        _show(document, "imported", result.detail)
    return _exit(_EXITS.get(result.outcome, Exit.FAILED), left)


def _exit(code: Exit, left: Sequence[Left]) -> int:
    if code is not Exit.DONE or not left:
        return code
    return Exit.FAILED if any(one.failed for one in left) else Exit.PINNED


def _layers(settings: Settings) -> Any:
    return replace(settings.topic_defaults, tiering=True)


async def _import(settings: Settings, catalog: Catalog, views: Sequence[PartitionView], report: Any) -> VerbResult:
    """The catalog is closed then."""
    from tierd.daemon.identity import identity  # heavy: everything that runs
    from tierd.tiering.backfill import backfill

    assert settings.remote.url is not None
    clock, disk = SystemClock(), PosixDisk()
    holder = catalog.get(_HOLDER) or str(Uuid(os.urandom(ID_BYTES)))
    catalog.put(_HOLDER, holder)
    ring = load_ring(settings.remote.encryption.key_files, settings.remote.encryption.active)
    limits = limits_of(settings.remote, clock)
    bucket = open_store(settings.remote.url, settings.remote, disk=disk, clock=clock, limits=limits)
    who = identity(Uuid.parse(holder), settings.state_dir.stat().st_ino)
    options = TiererOptions(remote=settings.remote, state_dir=settings.state_dir)
    return await backfill(options, clock, disk, replace(bucket, ring=ring), catalog, views, who, report)


def _dry_run(
    settings: Settings, directories: Sequence[Path], topics: Sequence[str], *, active: bool, as_json: bool
) -> int:
    """By what the state directory knows; the bucket is not asked."""
    path = settings.state_dir / CATALOG
    catalog = Catalog.open(path) if path.exists() else None
    try:
        views, left = look(directories, topics, _layers(settings), catalog, active=active)
        planned = {view.name: _planned(view, catalog) for view in views}
    finally:
        if catalog is not None:
            catalog.close()
    chosen = [segment for one in planned.values() for segment in one]
    requests: Counter[str] = Counter()
    for segment in chosen:
        if segment.size_bytes:
            requests += copy_requests(segment.size_bytes, settings.remote.part_bytes)
    rows = [_plan_row(view, planned[view.name]) for view in views]
    pinned = [Left(view.name, view.pinned_by, failed=False) for view in views if view.pinned_by]
    document = _document(settings, len(chosen), _bytes(chosen), [_row(one) for one in (*left, *pinned)], dry_run=True)
    document |= {"requests": dict(sorted(requests.items())), "planned": rows} | _active(views)
    if as_json:
        print_json(document)
    else:
        for row in rows:
            if row["segments"]:
                what = f"offsets {row['start']} to {row['stop'] - 1}, {row['segments']} segments, {size(row['bytes'])}"
                click.echo(f"{row['topic']}-{row['partition']}: {what}")
        _show(document, "would be imported", f"{sum(requests.values())} requests")
    return Exit.DONE


def _plan_row(view: PartitionView, segments: Sequence[SegmentView]) -> dict[str, Any]:
    """Ends are exclusive."""
    start, stop = (segments[0].base, segments[-1].next_base) if segments else (None, None)
    facts = {"segments": len(segments), "bytes": _bytes(segments), "start": start, "stop": stop}
    return {"topic": view.name.topic, "partition": view.name.partition, **facts}


def _planned(view: PartitionView, catalog: Catalog | None) -> list[SegmentView]:
    row = None if catalog is None else catalog.partition(view.id)
    some = uncopied(view, None if row is None else row.copied_to)
    return [one for one in some if one.next_base <= view.last_stable]


def _active(views: Sequence[PartitionView]) -> dict[str, int]:
    """What only the source has still, as its writer goes on with it; none with --active."""
    sizes = [one.active_bytes for one in views if one.active_bytes]
    return {"active_segments": len(sizes), "active_bytes": sum(sizes)}


def _bytes(segments: Sequence[SegmentView]) -> int:
    return sum(one.size_bytes for one in segments)


def _left(result: VerbResult, left: Sequence[Left]) -> list[dict[str, Any]]:
    rows = [_row(one) for one in left]
    for one in result.left:
        rows.append({"topic": one.topic, "partition": one.part.partition, "reason": one.waiting.detail})
    return rows


def _row(one: Left) -> dict[str, Any]:
    return {"topic": one.name.topic, "partition": one.name.partition, "reason": one.reason}


def _document(
    settings: Settings, segments: int, size_bytes: int, left: Sequence[Mapping[str, Any]], *, dry_run: bool
) -> dict[str, Any]:
    """What --json prints."""
    return {
        "url": settings.remote.url,
        "dry_run": dry_run,
        "segments": segments,
        "bytes": size_bytes,
        "left": list(left),
    }


def _show(document: Mapping[str, Any], done: str, detail: str) -> None:
    for row in document["left"]:
        click.echo(f"left: {row['topic']}-{row['partition']}: {row['reason']}", err=True)
    if document["active_segments"]:
        what = f"{document['active_segments']} active segments, {size(document['active_bytes'])}"
        click.echo(f"not imported: {what}: --active takes them once Kafka is stopped for good", err=True)
    more = f"; {detail}" if detail else ""
    click.echo(f"{done}: {document['segments']} segments, {size(document['bytes'])}{more}")
