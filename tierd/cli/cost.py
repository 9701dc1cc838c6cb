"""`tierd cost`: requests and bytes by topic and operation, in money by the price table of the settings."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tierd.base.errors import TierdError
from tierd.cli.arguments import Month
from tierd.cli.client import NotRunning, ask
from tierd.cli.places import json_option, place_options, settings_at
from tierd.cli.screen import money, print_json, size
from tierd.config.model import Settings
from tierd.config.state_files import CATALOG, USAGE
from tierd.storage.database import DatabaseDamaged

if TYPE_CHECKING:
    from tierd.tiering.usage import UsageRow

_COLUMNS = ("topic", "requests", "sent", "read", "for requests", "for reading", "stored", "a month")
_ARCHIVE = "(none)"


@click.command("cost")
@place_options
@click.option("--month", metavar="YYYY-MM", type=Month(), help="Another month than this one (UTC).")
@json_option
def cost(config: Path | None, data: tuple[Path, ...], state: Path | None, month: str | None, as_json: bool) -> int:
    """Show what was asked of the bucket in a month, by topic and operation, and what it comes to by the prices in the
    settings (prices.*); and what it costs to keep what is there for a month.

    Works whether tierd runs or not. Requests that verify and restore make are not in it: they say themselves.
    """
    settings = settings_at(config, data, state)
    try:
        document = ask(settings.control_socket, "cost", month=month).result
    except NotRunning:
        if not settings.state_dir.exists():
            raise  # a misspelt place is not one that costs nothing
        document = _offline(settings, month)
    if as_json:
        print_json(document)
    else:
        for line in _lines(document):
            click.echo(line)
    return 0


def _offline(settings: Settings, month: str | None) -> dict[str, Any]:
    from tierd.tiering.catalog import Catalog
    from tierd.tiering.costs import cost_document
    from tierd.tiering.usage import StoredRow, month_of

    wanted = month or month_of(time.time_ns() // 1_000_000)
    stored = []
    rows = _used(settings.state_dir / USAGE, wanted)
    if (settings.state_dir / CATALOG).exists() and not settings.is_archive:
        catalog = Catalog.open(settings.state_dir / CATALOG)
        stored = [StoredRow(*row) for row in catalog.stored()]
        catalog.close()
    storage_class = settings.remote.s3.storage_class.log  # nearly all bytes are these
    return cost_document(settings.prices, rows, stored, month=wanted, storage_class=storage_class)


def _used(path: Path, month: str) -> "list[UsageRow]":
    from tierd.tiering.usage import UsageBook

    if not path.exists():
        return []
    try:
        book = UsageBook.open(path)
        try:
            return book.rows(month)
        finally:
            book.close()
    except DatabaseDamaged as error:
        raise TierdError(f"{error}; start tierd again, which sets it aside and counts anew, or move it away") from error


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for topic in document["topics"]:
        rows.append(_cells(topic["topic"] or _ARCHIVE, topic))
        rows += [_operation(one) for one in topic["operations"]]
    rows.append(_cells("total", document["total"]))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    yield f"{document['month']} (UTC), money in {document['currency']}, storage class {document['storage_class']}"
    for row in rows:
        cells = zip(row, widths, strict=True)
        yield "  ".join(f"{text:{'>' if at else '<'}{width}}" for at, (text, width) in enumerate(cells)).rstrip()


def _cells(name: str, topic: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        name,
        f"{topic['requests']:,}",
        size(topic["sent_bytes"]),
        size(topic["received_bytes"]),
        money(topic["requests_cost"]),
        money(topic["egress_cost"]),
        size(topic["stored_bytes"]),
        money(topic["storage_cost_per_month"]),
    )


def _operation(one: Mapping[str, Any]) -> tuple[str, ...]:
    sent, received = (size(one[name]) if one[name] else "" for name in ("sent_bytes", "received_bytes"))
    return (f"  {one['operation']}", f"{one['requests']:,}", sent, received, money(one["cost"]), "", "", "")
