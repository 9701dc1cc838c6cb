"""`tierd restore`: the partition directories of an archive, made again from its bucket. Nothing is written there."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from tierd.base.clock import SystemClock
from tierd.base.errors import StartRefused, Usage
from tierd.base.exits import Exit
from tierd.cli.places import dry_run_option, json_option
from tierd.cli.restore_bounds import asked_for, bounds_of, check_ids
from tierd.cli.restore_groups import group_facts, in_words, offsets_topic, write_groups
from tierd.cli.restore_kafka import FORMATTED, check_formatted, write_bootstrap
from tierd.cli.restore_registry import register
from tierd.cli.screen import print_json, size, verb_progress
from tierd.cli.surveying import survey
from tierd.cli.thaw import thaw_bucket
from tierd.config.load import Options, load
from tierd.config.model import Settings
from tierd.config.state_files import REGISTRY, RESTORE
from tierd.remote.open import Bucket
from tierd.storage import names
from tierd.storage.dirlock import DirectoryLock
from tierd.storage.disk import PosixDisk
from tierd.storage.folders import make_folder
from tierd.tiering.restore import journal
from tierd.tiering.restore.cutting import Cutting
from tierd.tiering.restore.groups import Clamped, clamp, find_groups
from tierd.tiering.restore.journal import Asked, Journal
from tierd.tiering.restore.partition import Restored
from tierd.tiering.restore.plan import PartitionPlan, Plan, make_plan
from tierd.tiering.restore.run import Progress, Restore
from tierd.tiering.restore.thaw import TIERS

_THREADS = 4
_NOBODYS = frozenset({names.LOCK, "lost+found"})
_PATH = click.Path(path_type=Path)


@click.command("restore")
@click.option("--remote", metavar="URL", help="The bucket: s3://BUCKET/PREFIX/ or file:DIR. It is only read.")
@click.option("--to", metavar="DIR", type=_PATH, required=True, help="An empty place, to become a data directory.")
@click.option("--topic", "topics", metavar="NAME", multiple=True, help="Only this topic; may be repeated.")
@click.option("--until", metavar="TIME", help="End each partition before what is of TIME or later (ISO 8601, or ms).")
@click.option("--offsets", metavar="FILE", type=_PATH, help="End partitions at the offsets that this JSON file says.")
@click.option("--keep-ids", is_flag=True, help="Topics keep their ids; refused where the bucket has later offsets.")
@click.option("--kafka", is_flag=True, help="DIR was just formatted by Kafka, which is to start on what comes there.")
@click.option("--thaw", is_flag=True, help="Restore nothing: ask for readable copies of what the bucket has archived.")
@click.option("--thaw-days", metavar="N", type=click.IntRange(1), default=7, help="So long these stay; by default 7.")
@click.option("--thaw-tier", type=click.Choice(TIERS), default=TIERS[0], help="How fast, at which price.")
@click.option("--state", metavar="DIR", type=_PATH, help="Its state directory; by default <DIR>.tierd.")
@click.option("-c", "--config", metavar="FILE", type=_PATH, help="tierd.toml.")
@click.option("--set", "sets", metavar="KEY=VALUE", multiple=True, help="Any setting; may be repeated.")
@dry_run_option
@json_option
def restore(
    remote: str | None,
    to: Path,
    topics: tuple[str, ...],
    until: str | None,
    offsets: Path | None,
    keep_ids: bool,
    kafka: bool,
    thaw: bool,
    thaw_days: int,
    thaw_tier: str,
    state: Path | None,
    config: Path | None,
    sets: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
) -> int:
    """Make the partition directories of an archive again, bit for bit, as a clean stop leaves them.

    With --until a partition ends before the first batch of which a record has that time or a later one, with --offsets
    where the file says; lower where a transaction would be torn, in any of the partitions. Offsets of consumer groups
    come along, not behind the ends.

    With --kafka the topics get into the bootstrap.checkpoint of a data directory that kafka-storage.sh has formatted
    for a broker that is a controller, too, and has not started on. Topics without limits of their own keep everything.

    With --thaw nothing is restored: what lies in Glacier is asked for, and how long that takes is said.

    Every segment is checked before it gets its name: sizes, CRC-32Cs, each batch, the indexes. One that was cut off
    goes on when the same command is given again. The topics get new ids, for what is restored is another log from now
    on, unless --keep-ids is given: the bucket's owner must be gone then. Exit code 1 when the bucket lacks offsets that
    it should have; all the others are restored.
    """
    settings = load(Options(config=config, data=(to,), state=state, remote=remote, sets=sets))
    if thaw:
        return thaw_bucket(settings, topics, days=thaw_days, tier=thaw_tier, dry_run=dry_run, as_json=as_json)
    if settings.remote.url is None:
        raise Usage("say which bucket: --remote URL")
    asked = asked_for(settings.remote.url, topics, until, offsets, keep_ids=keep_ids, kafka=kafka)
    begun = _begun(settings, settings.data_dirs[0], asked)
    with survey(settings, settings.remote.url) as found:
        plan = _cut(make_plan(found, topics), found.bucket, begun)
        check_ids(plan, begun)
        begun = begun.with_ids(one.topic.topic_id for one in plan.topics)
        groups = _groups(found.bucket, plan, begun)
        if dry_run:
            _show_plan(plan, groups, as_json=as_json)
            return Exit.DONE
        restored = _restored(settings, found.bucket, plan, groups, begun)
    if as_json:
        print_json(_document(plan, groups, [_facts(one) for one in restored], dry_run=False))
    else:
        _show(plan, groups, restored, settings.data_dirs[0])
        if not keep_ids:
            click.echo("its topics have new ids: from now on it is another log than the bucket's")
    return Exit.FAILED if any(not lost.accepted for one in restored for lost in one.lost) else Exit.DONE


def _cut(plan: Plan, bucket: Bucket, begun: Journal) -> Plan:
    """*plan* with the ends that were asked for."""
    if not begun.asked.cuts:
        return plan
    bounds = bounds_of(plan, begun)
    with verb_progress("restore") as show:
        cutting = Cutting(bucket, _THREADS, _shown(show))
        return plan.ending(cutting.run(plan.partitions, bounds, settled=bool(begun.ends)))


def _groups(bucket: Bucket, plan: Plan, begun: Journal) -> Clamped | None:
    """What groups have committed; None when nobody has kept that of any topic of the plan."""
    file = find_groups(bucket, begun.asked.until_ms)
    if file is None:
        return None
    found = clamp(file, plan, begun.ids, SystemClock().now_ms())
    return found if found.groups else None


def _begun(settings: Settings, to: Path, asked: Asked) -> Journal:
    """The restore that is under way there, or a new one. Raises StartRefused where something else is."""
    file = settings.state_dir / RESTORE
    kept = journal.load(file)
    there = {path.name for path in to.iterdir()} if to.exists() else set()
    if asked.kafka:
        check_formatted(to)
        there -= FORMATTED
    if kept is None:
        if (settings.state_dir / REGISTRY).exists():
            raise StartRefused(f"{settings.state_dir} is a tierd's state directory: say another --to or --state")
        if there - _NOBODYS:
            raise StartRefused(f"{to} is not empty: restore to another place")
        return Journal(asked=asked)
    if kept.asked != asked:
        what = f"a restore of {kept.asked}, has begun in {to}"
        raise StartRefused(f"{what}: give the same command, or remove {to} and {file}")
    if names.META_PROPERTIES in there:
        raise StartRefused(f"a broker has used {to} before its restore was whole: restore to another place")
    return kept


def _restored(settings: Settings, bucket: Bucket, plan: Plan, groups: Clamped | None, begun: Journal) -> list[Restored]:
    disk, to, file = PosixDisk(), settings.data_dirs[0], settings.state_dir / RESTORE
    make_folder(disk, to)
    make_folder(disk, settings.state_dir)
    lock = DirectoryLock(to)
    try:
        if begun.asked.cuts:
            begun = replace(begun, ends=plan.ends)
        journal.keep(disk, file, begun)
        offsets = None if groups is None else offsets_topic(settings, begun)
        beside = {} if groups is None or offsets is None else write_groups(disk, to, offsets, groups)
        with verb_progress("restore") as show:
            made = Restore(bucket, disk, to, plan, begun, _THREADS, _shown(show), beside).run()
        if begun.asked.kafka:
            write_bootstrap(disk, to, plan, begun, offsets)
        else:
            register(settings.state_dir / REGISTRY, plan, begun, offsets)
        disk.unlink(file)
        disk.fsync_dir(settings.state_dir)
        if begun.asked.kafka and not any(settings.state_dir.iterdir()):
            disk.rmdir(settings.state_dir)
        return made
    finally:
        lock.release()


def _shown(show: Callable[[Mapping[str, Any]], None]) -> Callable[[Progress], None]:
    return lambda now: show(asdict(now))


def _document(
    plan: Plan, groups: Clamped | None, partitions: Sequence[Mapping[str, Any]], *, dry_run: bool
) -> dict[str, Any]:
    """What --json prints; ends are exclusive."""
    return {
        "url": plan.url,
        "dry_run": dry_run,
        "bytes": plan.size_bytes,
        "groups": group_facts(groups),
        "partitions": partitions,
    }


def _planned(one: PartitionPlan) -> dict[str, Any]:
    return {
        "topic": one.name.topic,
        "source_id": str(one.source.topic_id),
        "partition": one.name.partition,
        "log_start": one.log_start,
        "log_end": one.log_end,
        "source_end": one.source_end,
        "torn": one.torn,
        "segments": len(one.segments),
        "bytes": one.size_bytes,
        "missing": one.missing,
    }


def _facts(one: Restored) -> dict[str, Any]:
    offsets = {"log_start": one.log_start, "log_end": one.log_end}
    return _planned(one.plan) | offsets | {"topic_id": str(one.topic_id), "lost": [asdict(lost) for lost in one.lost]}


def _show_plan(plan: Plan, groups: Clamped | None, *, as_json: bool) -> None:
    if as_json:
        print_json(_document(plan, groups, [_planned(one) for one in plan.partitions], dry_run=True))
        return
    for one in plan.partitions:
        what = f"{len(one.segments)} segments, {size(one.size_bytes)}"
        why = ", a transaction would be torn" if one.torn else ""
        cut = f"; the bucket's ends at {one.source_end}{why}" if one.is_cut else ""
        click.echo(f"{one.name}: offsets {one.log_start} to {one.log_end} (exclusive), {what}{cut}")
        for start, stop in one.missing:
            click.echo(f"{one.name}: the bucket lacks offsets {start} to {stop - 1}", err=True)
    click.echo(f"would be restored: {_total(plan, groups)}")


def _show(plan: Plan, groups: Clamped | None, restored: Sequence[Restored], to: Path) -> None:
    for one in restored:
        for lost in one.lost:
            what = "accepted as lost" if lost.accepted else "LOST"
            click.echo(f"{one.plan.name}: {what}: offsets {lost.start} to {lost.stop - 1}: {lost.reason}")
    click.echo(f"restored to {to}: {_total(plan, groups)}")


def _total(plan: Plan, groups: Clamped | None) -> str:
    what = "" if groups is None else f"; {in_words(groups)}"
    return f"{len(plan.topics)} topics, {len(list(plan.partitions))} partitions, {size(plan.size_bytes)}{what}"
