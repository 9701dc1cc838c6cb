"""Every reason that tierd gives for what it does not do with a segment, and what to do about each.

One place: `tierd status` shows the reasons (`view.Waiting`), `tierd why` what to do, too. Who gives a new one adds it
here; a test looks for each.
"""

from collections.abc import Mapping
from types import MappingProxyType

NOTHING = "nothing: it goes on by itself"

NEXT_STEPS: Mapping[str, str] = MappingProxyType(
    {
        # a segment is not copied
        "active": "nothing: it is copied once it is closed, at segment.bytes, segment.ms or tierd.archive.max.age.ms; "
        "`tierd copy --roll` closes it now",
        "unflushed": "nothing: it is flushed in a moment; if this stays, the disk is slow or failing: see the log",
        "passed": "nothing: total retention lets it go in a moment, and what follows is copied then",
        "pinned": "end the transaction: let its producer commit or abort, or abort it with kafka-transactions.sh; at "
        "its transaction.timeout.ms it is aborted by itself",
        "cleaning": NOTHING,
        "uncleaned": "nothing, or let it wait less long: max.compaction.lag.ms, tierd.archive.max.age.ms of the topic",
        "copying": NOTHING,
        "hung": "look whether the bucket answers; remote.request.timeout.ms ends a request, which is then sent again",
        "retrying": "see to what the error says; it is tried again by itself, and by `tierd copy` at once",
        "claim": "see the log for why this run does not have the bucket; only one may write to it. Pending: it goes on "
        "when the bucket answers. Lost: stop this tierd, another one has the bucket",
        "untiered": "set remote.storage.enable=true for the topic, in a tierd that has a bucket (--remote)",
        "internal": "nothing: these never go to the bucket, but what groups have committed does, as group files",
        "paused": "see to what stops it: `tierd resume` lets all go on, remote.log.copy.disable=false a topic",
        "unknown": "ask again when tierd runs (`tierd serve`) and the bucket has answered",
        "lost": "see `tierd gaps list`: put the object back, or accept the loss with `tierd gaps accept`; what the disk"
        " has is copied again by itself",
        "offline": "mend the disk and start tierd again; for one that will not come back: `tierd serve --lost DIR`",
        "read-only": "give the partition's directory its partition.metadata back, then start tierd again",
        # a copied segment is still on the disk
        "kept": "nothing, or change the limit that is named; `tierd evict` drops from the disk all that the bucket has",
        "due": "nothing: it goes at the next look, every log.retention.check.interval.ms",
        "clock": "set the clock right (NTP), then start tierd again",
        # a segment is still in the bucket
        "within limits": "nothing, or change the limit that is named",
        "delayed": "nothing: released data stays for tierd.delete.delay.ms, in case it was a mistake",
        "refused": "let this tierd delete there (lock, retention period, policy); it tries again by itself",
    }
)


def next_step(reason: str) -> str:
    """What to do about *reason*."""
    return NEXT_STEPS.get(reason, NOTHING)
