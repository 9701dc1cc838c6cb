"""What verbs that only ask want to know of the tierer, and its answers; parts of `messages`. They change nothing."""

from dataclasses import dataclass

from tierd.base.ids import PartitionId
from tierd.tiering.outlook import Outlook
from tierd.tiering.refusals import RefusedDelete
from tierd.tiering.usage import StoredRow, UsageRow
from tierd.tiering.why import Why


@dataclass(frozen=True, slots=True)
class GetOutlook:
    """`tierd retention --dry-run`: what goes up to *within_ms* from now, of one topic or of all. Answered by
    OutlookFound."""

    call: int
    within_ms: int
    topic: str | None


@dataclass(frozen=True, slots=True)
class OutlookFound:
    """Only partitions of which something goes or is held back."""

    call: int
    trouble: str | None
    """Why nothing goes now, in words."""
    outlooks: tuple[Outlook, ...]


@dataclass(frozen=True, slots=True)
class GetWhy:
    """`tierd why`; answered by WhyFound."""

    call: int
    part: PartitionId


@dataclass(frozen=True, slots=True)
class WhyFound:
    """Three answers; None where there is no segment to ask about."""

    call: int
    copy: Why | None
    """Why the next segment is not copied."""
    local: Why | None
    """Why the oldest on the disk is there."""
    remote: Why | None
    """Why the oldest in the bucket is there."""


@dataclass(frozen=True, slots=True)
class GetConditions:
    """`tierd status`: what is to be said of the bucket as a whole. Answered by ConditionsFound."""

    call: int


@dataclass(frozen=True, slots=True)
class ConditionsFound:
    call: int
    notes: tuple[str, ...]
    """What is set on the bucket, or missing there, in sentences."""
    refused: tuple[RefusedDelete, ...]


@dataclass(frozen=True, slots=True)
class GetUsage:
    """`tierd cost`: what the bucket was used for in *month* (`2026-12`; None: this one); with *since_start* by this
    tierer. Answered by UsageFound."""

    call: int
    month: str | None
    since_start: bool


@dataclass(frozen=True, slots=True)
class UsageFound:
    call: int
    rows: tuple[UsageRow, ...]


@dataclass(frozen=True, slots=True)
class GetStored:
    """`tierd cost`: what each topic has in the bucket now. Answered by StoredFound."""

    call: int


@dataclass(frozen=True, slots=True)
class StoredFound:
    call: int
    rows: tuple[StoredRow, ...]


Question = (
    GetOutlook
    | OutlookFound
    | GetWhy
    | WhyFound
    | GetConditions
    | ConditionsFound
    | GetUsage
    | UsageFound
    | GetStored
    | StoredFound
)
