"""`tierd export-metadata`: what Kafka's remote log metadata topic has to hold for it to go on from a bucket."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_bytes
from typing import Any

import click

from tierd.base.clock import SystemClock
from tierd.base.disk import Disk
from tierd.base.errors import StartRefused, Usage
from tierd.base.exits import Exit
from tierd.base.ids import ID_BYTES, TopicPartition, Uuid
from tierd.cli.places import dry_run_option, json_option
from tierd.cli.screen import print_json, size, verb_progress
from tierd.cli.surveying import survey
from tierd.config.load import Options, load
from tierd.remote.open import Bucket
from tierd.storage.dirlock import DirectoryLock
from tierd.storage.disk import PosixDisk
from tierd.storage.folders import make_folder
from tierd.tiering.handover.export import (
    DeletedPartition,
    Export,
    ExportedPartition,
    Unreadable,
    batches,
    make_values,
    plan_export,
)
from tierd.tiering.handover.records import PARTITIONS, TOPIC, metadata_partition
from tierd.tiering.restore.fresh import make_partition
from tierd.tiering.restore.partition import under_way

_THREADS = 8
_PATH = click.Path(path_type=Path)


def _id(_context: click.Context, _option: click.Parameter, text: str | None) -> Uuid | None:
    try:
        return None if text is None else Uuid.parse(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command("export-metadata")
@click.option("--remote", metavar="URL", help="The bucket: s3://BUCKET/PREFIX/ or file:DIR. It is only read.")
@click.option("--to", metavar="DIR", type=_PATH, required=True, help="A log directory of Kafka, which does not run.")
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic; may be repeated.")
@click.option("--partitions", metavar="N", type=click.IntRange(1, 10_000), default=PARTITIONS, show_default=True,
              help=f"Kafka's {TOPIC} has so many.")  # fmt: skip
@click.option("--topic-id", metavar="ID", callback=_id, help="Its id, where Kafka has it already; else a new one.")
@click.option("--node-id", metavar="N", type=click.IntRange(0), default=0, help="Who says that topics were deleted.")
@click.option("-c", "--config", metavar="FILE", type=_PATH, help="tierd.toml.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
@dry_run_option
@json_option
def export_metadata(
    remote: str | None,
    to: Path,
    topics: tuple[str, ...],
    partitions: int,
    topic_id: Uuid | None,
    node_id: int,
    config: Path | None,
    sets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Write the partitions of __remote_log_metadata for a Kafka with Aiven's plugin to go on from a bucket.

    Every segment gets the records that such a Kafka would have written for it, in the partition where it looks for
    them; what is below log start and waits for its delete is said to be on its way out, topics that were deleted are
    said to be. Whoever wrote the bucket must be gone by then. One GET for each segment.

    Exit code 1 when a segment's manifest cannot be read: it has no records.
    """
    settings = load(Options(config=config, data=(to,), remote=remote, sets=sets))
    if settings.remote.url is None:
        raise Usage("say which bucket: --remote URL")
    target = settings.data_dirs[0]
    _check_free(target)
    with survey(settings, settings.remote.url) as found:
        export = plan_export(found, topics)
        document = _document(found.bucket, export, partitions, dry_run=dry_run)
        unreadable: Sequence[Unreadable] = ()
        if not dry_run:
            topic_id = topic_id or Uuid(token_bytes(ID_BYTES))
            unreadable = _write(found.bucket, export, target, topic_id, partitions, node_id)
            document |= {"topic_id": str(topic_id)}
    if as_json:
        print_json(document | {"unreadable": [{"key": one.key, "reason": one.reason} for one in unreadable]})
    else:
        _show(export, unreadable, target, partitions, dry_run=dry_run)
        click.echo(f"the plugin finds the objects with rsm.config.key.prefix={document['key_prefix']}")
    return Exit.FAILED if unreadable else Exit.DONE


def _check_free(target: Path) -> None:
    """Raises StartRefused where partitions of that topic are already: two logs cannot be made into one."""
    there = sorted(path.name for path in target.glob(f"{TOPIC}-*") if not path.name.endswith("-delete"))
    if there:
        raise StartRefused(f"{target} has {there[0]} already: move the directories of {TOPIC} away first")


def _write(
    bucket: Bucket, export: Export, target: Path, topic_id: Uuid, partitions: int, node_id: int
) -> Sequence[Unreadable]:
    """Raises RemoteUnavailable before anything is written; StartRefused, DiskFull, OSError."""
    disk, now_ms = PosixDisk(), SystemClock().now_ms()
    make_folder(disk, target)
    lock = DirectoryLock(target)
    try:
        with verb_progress("export-metadata") as show:
            made = make_values(
                bucket,
                export,
                partitions=partitions,
                node_id=node_id,
                now_ms=now_ms,
                threads=_THREADS,
                progress=lambda done: show(_progress(export, done)),
            )
        for number in range(partitions):
            name = TopicPartition(TOPIC, number)
            _clear(disk, under_way(target, name, topic_id))
            make_partition(disk, target, name, topic_id, batches(made.values.get(number, []), now_ms))
        return made.unreadable
    finally:
        lock.release()


def _clear(disk: Disk, folder: Path) -> None:
    """Take away what a run that was cut off has left."""
    if folder.is_dir():
        for path in sorted(folder.iterdir()):
            disk.unlink(path)
        disk.rmdir(folder)


def _progress(export: Export, done: int) -> Mapping[str, Any]:
    total = export.segments
    return {"segments_done": done, "segments": total, "bytes_done": done, "bytes": total, "detail": "read"}


def _document(bucket: Bucket, export: Export, partitions: int, *, dry_run: bool) -> dict[str, Any]:
    """What --json prints; ends are exclusive."""
    return {
        "url": bucket.url,
        "key_prefix": bucket.keys.prefix,
        "dry_run": dry_run,
        "segments": export.segments,
        "records": export.records,
        "requests": export.segments,
        "partitions": [_facts(one, partitions) for one in export.partitions],
        "deleted": [_deleted(one, partitions) for one in export.deleted],
    }


def _facts(one: ExportedPartition, partitions: int) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "topic_id": str(one.part.topic_id),
        "partition": one.part.partition,
        "metadata_partition": metadata_partition(one.part, partitions),
        "log_start": one.log_start,
        "log_end": one.log_end,
        "segments": len(one.segments),
        "released": one.released,
        "bytes": one.size_bytes,
        "lost": [{"start": start, "stop": stop} for start, stop in one.lost],
    }


def _deleted(one: DeletedPartition, partitions: int) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "topic_id": str(one.part.topic_id),
        "partition": one.part.partition,
        "metadata_partition": metadata_partition(one.part, partitions),
        "has_objects": one.has_objects,
    }


def _show(export: Export, unreadable: Sequence[Unreadable], target: Path, partitions: int, *, dry_run: bool) -> None:
    for one in export.partitions:
        where = f"{TOPIC}-{metadata_partition(one.part, partitions)}"
        released = f", {one.released} of them wait for their delete" if one.released else ""
        what = f"{len(one.segments)} segments, {size(one.size_bytes)}{released}"
        click.echo(
            f"{one.topic}-{one.part.partition}: offsets {one.log_start} to {one.log_end} (exclusive), {what}; {where}"
        )
        for start, stop in one.lost:
            click.echo(f"{one.topic}-{one.part.partition}: the bucket lacks offsets {start} to {stop - 1}", err=True)
    left = sorted({one.topic for one in export.deleted if one.has_objects})
    if left:
        click.echo(f"deleted topics that still have objects, which Kafka will not delete: {', '.join(left)}", err=True)
    for bad in unreadable:
        click.echo(f"NOT EXPORTED: {bad.key}: {bad.reason}", err=True)
    done = "would be written" if dry_run else f"written to {target}"
    click.echo(f"{done}: {export.records} records of {export.segments} segments in {partitions} partitions of {TOPIC}")
