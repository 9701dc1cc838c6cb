"""The look at the bucket at each start: what its server can do, and what is set on it that would hurt."""

import logging

from tierd.base.errors import TierdError
from tierd.remote.facts import facts_of, warnings
from tierd.remote.open import Bucket
from tierd.remote.watched import WatchedStore
from tierd.tiering.state import TierState

log = logging.getLogger(__name__)


async def look_at_bucket(state: TierState) -> None:
    """Say what was found; the store itself is told what it must do without, `status` what to show."""
    bucket = state.bucket
    try:
        report = await state.blocking(lambda: _probed(bucket))
    except TierdError as error:
        log.warning("the bucket could not be probed: %s", error)
        return
    for what, there, otherwise in report:
        if there:
            log.info("bucket: %s: yes", what)
        else:
            log.warning("bucket: %s: no: %s", what, otherwise)
    state.notes = tuple(f"{what}: no: {otherwise}" for what, there, otherwise in report if not there)
    try:
        facts = await state.blocking(lambda: facts_of(bucket.store))
    except TierdError as error:
        log.warning("what is set on the bucket could not be read: %s", error)
        return
    if facts is not None:
        found = warnings(facts, bucket.keys.prefix)
        for line in found:
            log.warning("bucket: %s", line)
        state.notes += tuple(found)


def _probed(bucket: Bucket) -> list[tuple[str, bool, str]]:
    """(what, there?, what it means when missing), in a thread."""
    from tierd.remote.probe import probe  # brings boto3, which a directory does not need

    store = bucket.store.plain if isinstance(bucket.store, WatchedStore) else bucket.store
    return probe(store, bucket.keys.own_folder).table()
