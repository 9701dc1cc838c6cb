"""A disk that has fallen behind goes on at the copied end, also when the bucket has lost what it knew of producers."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.tierer_bench import Bench, drive, who
from tierd.remote.crc import crc32c
from tierd.remote.memory import MemoryStore
from tierd.storage.epochs import parse_epochs
from tierd.storage.snapshot import parse_snapshot


def _delete(store: MemoryStore, key: str) -> None:
    store.delete([key])


def _become(change: Callable[[bytes], bytes]) -> Callable[[MemoryStore, str], None]:
    def work(store: MemoryStore, key: str) -> None:
        raw = change(store.get(key))
        store.delete([key])
        store.put(key, raw, crc32c=crc32c(raw))

    return work


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(_delete, id="deleted"),
        pytest.param(_become(lambda raw: raw[:1]), id="cut off"),
        pytest.param(_become(lambda raw: raw[:-1]), id="a byte short"),
        pytest.param(_become(lambda raw: bytes(len(raw))), id="zeros"),
    ],
)
def test_lost_indexes_cost_the_producers_and_no_start(
    tmp_path: Path, harm: Callable[[MemoryStore, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    async def work(bench: Bench) -> None:
        view = bench.adopt("idempotent-0")
        await bench.open(who())
        await bench.copy()
        whole = await bench.tierer.seed(view.id)
        assert parse_snapshot(whole.snapshot)
        harm(bench.store, bench.catalog.segments(view.id)[-1].remote.indexes_key)
        seed = await bench.tierer.seed(view.id)
        assert parse_snapshot(seed.snapshot) == []
        assert parse_epochs(seed.leader_epochs) == parse_epochs(whole.leader_epochs)
        assert "earlier producers is lost" in caplog.text

    with caplog.at_level(logging.ERROR):
        drive(tmp_path, work)
