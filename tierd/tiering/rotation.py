"""`tierd keys`: which key encrypts what, and data keys wrapped anew under the active one.

A rotation rewrites manifests and nothing else, each by compare-and-swap, then the catalog's row; the head follows. What
was done is done: a rotation that was broken off goes on with what is left.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby

from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.remote.crc import crc32c
from tierd.remote.errors import NotFound, PreconditionFailed
from tierd.remote.manifest import parse_manifest, with_data_key
from tierd.tiering.rows import CatalogSegment
from tierd.tiering.state import COMMIT_WITHIN_MS, TierState
from tierd.tiering.verbs import KeyUse, Outcome, PlannedRow, Report, VerbProgress, VerbResult, unclaimed

log = logging.getLogger(__name__)

_AT_A_TIME = 16
_TRIES = 3


class Rotation:
    """Event loop only; the bucket is asked in threads."""

    def __init__(self, state: TierState) -> None:
        self._state = state
        self._running = asyncio.Lock()

    def uses(self) -> tuple[KeyUse, ...]:
        """Every key of the ring, and every other one that a segment still names, by id."""
        files = {path.stem: str(path) for path in self._state.options.remote.encryption.key_files}
        uses, ring = self._state.catalog.key_uses(), self._state.bucket.ring
        return tuple(
            KeyUse(
                key_id=key_id,
                file=files.get(key_id),
                active=key_id == ring.active,
                segments=uses.get(key_id, (0, 0))[0],
                bytes=uses.get(key_id, (0, 0))[1],
            )
            for key_id in sorted({*ring.ids, *uses})
        )

    async def plan(self) -> VerbResult:
        """What `rotate` would do now."""
        active, refused = self._may()
        if refused is not None:
            return refused
        rows = self._state.catalog.under_other_keys(active)
        planned = []
        for part, some in groupby(rows, lambda row: row.remote.part):
            of_part = list(some)
            first, last = of_part[0].remote, of_part[-1].remote
            size_bytes = sum(row.remote.log_bytes for row in of_part)
            planned.append(PlannedRow(part, first.topic, first.base, last.next_base, len(of_part), size_bytes))
        return VerbResult(
            outcome=Outcome.DONE, segments=len(rows), bytes=sum(row.bytes for row in planned), planned=tuple(planned)
        )

    async def rotate(self, report: Report) -> VerbResult:
        """Wrap every data key that is wrapped under another key under the active one."""
        async with self._running:
            active, refused = self._may()
            return await self._rotate(active, report) if refused is None else refused

    async def _rotate(self, active: str, report: Report) -> VerbResult:
        rows = self._state.catalog.under_other_keys(active)
        done: list[CatalogSegment] = []
        failed: list[CorruptFile] = []
        total = sum(row.remote.log_bytes for row in rows)
        outcome, detail = Outcome.DONE, ""
        for batch in _batches(rows):
            if not await self._state.owned(COMMIT_WITHIN_MS):
                lost = unclaimed(self._state.claim)
                outcome, detail = Outcome.UNAVAILABLE, "the bucket does not answer"
                if lost is not None:
                    outcome, detail = lost.outcome, lost.detail
                break
            work = [self._state.blocking(partial(self._rewrap, row, active)) for row in batch]
            results = await asyncio.gather(*work, return_exceptions=True)
            for row, result in zip(batch, results, strict=True):
                if isinstance(result, CorruptFile):
                    failed.append(result)
                elif isinstance(result, RemoteUnavailable):
                    outcome, detail = Outcome.UNAVAILABLE, str(result)
                elif isinstance(result, BaseException):
                    raise result
                else:
                    done.append(row)
            size = sum(row.remote.log_bytes for row in done)
            report(VerbProgress(len(done), len(rows), size, total))
            if outcome is not Outcome.DONE:
                break
        if failed and outcome is Outcome.DONE:
            outcome, detail = Outcome.FAILED, f"{len(failed)} segments stay under their key: {failed[0]}"
        size = sum(row.remote.log_bytes for row in done)
        log.info("data keys wrapped anew", extra={"key": active, "segments": len(done), "of": len(rows)})
        return VerbResult(outcome=outcome, detail=detail, segments=len(done), bytes=size)

    def _may(self) -> tuple[str, VerbResult | None]:
        """The active key, and why nothing may be done."""
        active = self._state.bucket.ring.active
        if active is None:
            why = "remote.encryption.key.active names no key to wrap data keys under"
            return "", VerbResult(outcome=Outcome.FAILED, detail=why)
        return active, unclaimed(self._state.claim)

    # --- in a thread -------------------------------------------------------------------------------------------------
    def _rewrap(self, row: CatalogSegment, active: str) -> None:
        """Raises CorruptFile (the manifest is no good) and RemoteUnavailable. A segment that is gone needs no key."""
        bucket, key = self._state.bucket, row.remote.manifest_key
        for _ in range(_TRIES):
            try:
                info, raw = bucket.store.get_with_info(key)
            except NotFound:
                return
            encryption = parse_manifest(raw, key).encryption
            if encryption is None:
                raise CorruptFile(key, 0, "its segment is encrypted, and it names no key")
            if encryption.key_id != active:
                raw = with_data_key(raw, bucket.ring.rewrap(encryption.data_key, active, key))
                try:
                    bucket.store.put(key, raw, crc32c=crc32c(raw), metadata=info.metadata, if_match=info.etag)
                except PreconditionFailed:
                    continue  # deleted meanwhile, or wrapped anew by a request whose answer was lost
            self._state.catalog.rewrapped(row, active, len(raw))
            return
        raise RemoteUnavailable(f"{key}: somebody else keeps writing it")


def _batches(rows: Sequence[CatalogSegment]) -> Iterator[Sequence[CatalogSegment]]:
    for at in range(0, len(rows), _AT_A_TIME):
        yield rows[at : at + _AT_A_TIME]
