"""What `tierd restore` is told of where to end: `--until TIME`, `--offsets FILE`."""

import re
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from tierd.base.errors import StartRefused, Usage
from tierd.base.ids import PartitionId
from tierd.tiering.restore.journal import Asked, End, Journal
from tierd.tiering.restore.plan import Plan
from tierd.tiering.restore.walk import Bound


def asked_for(
    url: str, topics: Iterable[str], until: str | None, offsets: Path | None, *, keep_ids: bool, kafka: bool
) -> Asked:
    """Raises Usage."""
    if until is not None and offsets is not None:
        raise Usage("--until and --offsets: say one of them")
    return Asked(
        url=url,
        wanted=tuple(sorted(set(topics))),
        until_ms=None if until is None else moment_ms(until),
        ends=() if offsets is None else read_ends(offsets),
        keep_ids=keep_ids,
        kafka=kafka,
    )


def moment_ms(text: str) -> int:
    """Milliseconds since 1970 from such a number, or from ISO 8601 with its zone. Raises Usage."""
    if re.fullmatch(r"\d{1,15}", text, re.ASCII):
        return int(text)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Usage(f"--until {text}: say a time with its zone, as 2026-07-01T12:00:00Z, or milliseconds since 1970")
    return int(found.timestamp() * 1000)


class _Row(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore")

    topic: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)


class _File(BaseModel):
    """As kafka-delete-records.sh has it."""

    model_config = ConfigDict(strict=True, extra="ignore")

    partitions: list[_Row] = Field(min_length=1)


def read_ends(path: Path) -> tuple[End, ...]:
    """Raises Usage."""
    try:
        file = _File.model_validate_json(path.read_bytes())
    except OSError as error:
        raise Usage(f"--offsets {path}: {error.strerror}") from error
    except ValidationError as error:
        example = '{"partitions": [{"topic": "orders", "partition": 0, "offset": 1000}]}'
        raise Usage(f"--offsets {path}: it must be like {example}: {error.errors()[0]['msg']}") from error
    rows = {(one.topic, one.partition): one.offset for one in file.partitions}
    if len(rows) < len(file.partitions):
        raise Usage(f"--offsets {path}: a partition is there twice")
    return tuple(End(topic=topic, partition=part, offset=offset) for (topic, part), offset in sorted(rows.items()))


def bounds_of(plan: Plan, begun: Journal) -> dict[PartitionId, Bound]:
    """Where the partitions of *plan* are to end; those that an earlier run has found, if there was one.

    Raises Usage when the bucket does not have that.
    """
    asked: Asked = begun.asked
    if begun.ends:
        kept = {(one.topic, one.partition): one.offset for one in begun.ends}
        return {one.source: Bound(offset=kept.get((one.name.topic, one.name.partition), 0)) for one in plan.partitions}
    if asked.until_ms is not None:
        return {one.source: Bound(until_ms=asked.until_ms) for one in plan.partitions}
    known = {(one.name.topic, one.name.partition): one for one in plan.partitions}
    for end in asked.ends:
        what = known.get((end.topic, end.partition))
        if what is None:
            raise Usage(f"--offsets: {end.topic}-{end.partition} is not among what is restored")
        if not what.log_start <= end.offset <= what.log_end:
            has = f"the bucket has offsets {what.log_start} to {what.log_end} (exclusive)"
            raise Usage(f"--offsets: {what.name} cannot end at {end.offset}, {has}")
    return {known[one.topic, one.partition].source: Bound(offset=one.offset) for one in asked.ends}


def check_ids(plan: Plan, begun: Journal) -> None:
    """Raises StartRefused when ids are to be kept of a log that ends earlier than its source: one id would have two
    histories, and offsets of one would be taken for those of the other."""
    later = next((one for one in plan.partitions if one.is_cut), None)
    if begun.asked.keep_ids and later is not None:
        has = f"the bucket holds its offsets to {later.source_end}, this ends at {later.log_end}"
        raise StartRefused(f"{later.name} cannot keep its topic's id: {has}; restore it without --keep-ids")
