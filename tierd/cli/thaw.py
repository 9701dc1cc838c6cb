"""`tierd restore --thaw`: asks the bucket for readable copies of what it has archived, and says how long that takes."""

from collections.abc import Sequence
from dataclasses import asdict

import click

from tierd.base.clock import SystemClock
from tierd.base.errors import Usage
from tierd.cli.screen import print_json, size
from tierd.config.model import Settings
from tierd.remote.open import open_store
from tierd.storage.disk import PosixDisk
from tierd.tiering.restore.thaw import Thawed, thaw


def thaw_bucket(
    settings: Settings, topics: Sequence[str], *, days: int, tier: str, dry_run: bool, as_json: bool
) -> int:
    """The whole verb; nothing is restored. Gives the exit code."""
    if settings.remote.url is None:
        raise Usage("say which bucket: --remote URL")
    bucket = open_store(settings.remote.url, settings.remote, disk=PosixDisk(), clock=SystemClock())
    try:
        found = thaw(bucket, topics, days=days, tier=tier, dry=dry_run)
    finally:
        bucket.store.close()
    if as_json:
        rows = [asdict(one) for one in found]
        print_json({"dry_run": dry_run, "days": days, "tier": tier, "ready": _ready(found), "classes": rows})
        return 0
    for one in found:
        done = "would be asked for" if dry_run else "asked for now"
        click.echo(
            f"{one.storage_class}: {one.objects} objects, {size(one.bytes)}: {one.readable} can be read, "
            f"{one.under_way} are being thawed, {one.asked} {done}"
        )
        if one.asked or one.under_way:
            click.echo(f"  a {tier} thaw of {one.storage_class} takes {one.takes}; copies stay for {days} days")
    click.echo("all of it can be read: restore it now" if _ready(found) else "give the same command again to look")
    return 0


def _ready(found: Sequence[Thawed]) -> bool:
    return all(one.ready for one in found)
