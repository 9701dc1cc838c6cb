"""`tierd rebuild`: the catalog of a state directory made again from its bucket, while no daemon runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from tierd.base.clock import SystemClock
from tierd.base.errors import Usage
from tierd.base.exits import Exit
from tierd.base.ids import Uuid
from tierd.cli.alone import alone_in
from tierd.cli.places import dry_run_option, json_option, place_options, settings_at
from tierd.cli.screen import print_json, size, stderr
from tierd.config.model import Settings
from tierd.config.state_files import ARCHIVE_DATA, CATALOG, REGISTRY

_NAMED = 1000
"""So many differences are named one by one; all are counted."""


@click.command("rebuild")
@place_options
@dry_run_option
@json_option
def rebuild(config: Path | None, data: tuple[Path, ...], state: Path | None, dry_run: bool, as_json: bool) -> int:
    """Make the catalog again from the bucket, and say where the old one was wrong. No tierd may run there.

    A start makes a catalog that is missing, too; this one says how far it is, and needs no claim. The bucket is only
    read. The old catalog is kept beside the new one.
    """
    settings = settings_at(config, data, state)
    url, archive_id = _belongs_to(settings)
    with alone_in(settings.state_dir, "a tierd runs there: stop it first"), _progress() as show:
        result = _made(settings, url, archive_id, show, dry=dry_run)
    if as_json:
        print_json(result)
    else:
        _say(result)
    return Exit.DONE


def _belongs_to(settings: Settings) -> tuple[str, Uuid | None]:
    """The bucket of the state directory, and its archive as far as the registry knows it."""
    from tierd.broker.registry import Registry  # heavy: everything that runs
    from tierd.daemon import state

    if not (settings.state_dir / REGISTRY).exists():
        raise Usage(f"{settings.state_dir} is no state directory: say --data, --state or -c")
    if (settings.state_dir / ARCHIVE_DATA).is_dir():
        raise Usage(f"{settings.state_dir} is that of an archive, which looks at its whole bucket at each start")
    registry = Registry.open(settings.state_dir / REGISTRY)
    try:
        url, archive_id = state.stored_remote(registry), state.archive_id(registry)
    finally:
        registry.close()
    if url is None:
        raise Usage(f"{settings.state_dir} has no bucket")
    return url, archive_id


def _made(
    settings: Settings, url: str, archive_id: Uuid | None, show: Callable[[int, int], None], *, dry: bool
) -> dict[str, Any]:
    """What --json prints."""
    from tierd.remote.open import open_store
    from tierd.storage.disk import PosixDisk
    from tierd.tiering.rebuild import put_in_place, rebuild

    clock, disk, old = SystemClock(), PosixDisk(), settings.state_dir / CATALOG
    bucket = open_store(url, settings.remote, disk=disk, clock=clock)
    try:
        with TemporaryDirectory(prefix="rebuild-", dir=settings.state_dir) as folder:
            new = Path(folder) / CATALOG
            found = rebuild(bucket, clock, old=old, new=new, archive_id=archive_id, on_part=show)
            kept = None if dry else put_in_place(disk, new, old)
    finally:
        bucket.store.close()
    return {
        "url": url,
        "archive_id": None if archive_id is None else str(archive_id),
        "dry_run": dry,
        "old": found.old,
        "kept": None if kept is None else str(kept),
        "partitions": found.partitions,
        "segments": found.segments,
        "bytes": found.bytes,
        "different": len(found.differences),
        "differences": [asdict(one) for one in found.differences[:_NAMED]],
    }


@contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """How far it is, on a terminal."""
    console = stderr()
    with console.status("listing the bucket") as status:
        yield lambda done, total: status.update(f"{done} of {total} partitions")


def _say(result: dict[str, Any]) -> None:
    for one in result["differences"]:
        where = f"{one['topic']}-{one['partition']}: offsets {one['start']} to {one['stop'] - 1}"
        click.echo(f"{where}: {one['what']}")
    if result["different"] > len(result["differences"]):
        click.echo(f"... {result['different'] - len(result['differences'])} more")
    made = "would be made" if result["dry_run"] else "made"
    facts = f"{result['partitions']} partitions, {result['segments']} segments, {size(result['bytes'])}"
    click.echo(f"catalog {made} from {result['url']}: {facts}; {result['different']} differences; old: {result['old']}")
    if result["kept"] is not None:
        click.echo(f"the old one is kept: {result['kept']}")
