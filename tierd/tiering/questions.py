"""What verbs that only ask want to know of the tierer, and its answers; parts of `messages`. They change nothing."""

from dataclasses import dataclass

from tierd.tiering.outlook import Outlook


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


Question = GetOutlook | OutlookFound
