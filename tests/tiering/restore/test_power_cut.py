"""The power goes, or the process, at the steps of a restore that is cut: what has its name is whole, and it goes on."""

import shutil
from pathlib import Path
from random import Random

import pytest

from kit.aiven import KEYS, recorded_bucket
from kit.model_disk import ModelDisk, PowerCut
from kit.restoring import Restoring, files
from tierd.base.disk import Disk
from tierd.base.ids import TopicPartition, Uuid
from tierd.remote.open import Bucket
from tierd.storage import names
from tierd.storage.batch import encode_batch
from tierd.storage.disk import PosixDisk
from tierd.storage.records import Record
from tierd.tiering.restore.fresh import make_partition
from tierd.tiering.restore.plan import Plan

GROUPS = TopicPartition("__consumer_offsets", 7)
COMMIT = encode_batch([Record(0, 1, b"key", b"value")])


def work(restoring: Restoring, disk: Disk, plan: Plan) -> None:
    restoring.disk = disk
    end = make_partition(disk, restoring.to, GROUPS, Uuid(b"\1" * 16), [COMMIT])
    restoring.run(plan, {GROUPS: end})


@pytest.mark.parametrize("power", [True, False])
def test_at_any_step(tmp_path: Path, power: bool) -> None:
    store, _ = recorded_bucket("txn")
    restoring = Restoring(Bucket(store, KEYS, "memory:"), tmp_path)
    plan = restoring.plan(ends={"txn-0": 104})
    work(restoring, PosixDisk(), plan)
    whole = files(restoring.to)
    dice, steps = Random(7), 0
    while True:
        shutil.rmtree(restoring.to)
        restoring.to.mkdir()
        steps += dice.randint(1, 5)
        disk = ModelDisk(restoring.to, dies_at=steps)
        try:
            work(restoring, disk, plan)
            break
        except PowerCut:
            if power:
                disk.lose_unsynced(dice if dice.random() < 0.7 else None)
        for folder in restoring.to.iterdir():
            if folder.is_dir() and names.parse_marked_directory(folder.name) is None:
                prefix = f"{folder.name}/"
                expected = {name: raw for name, raw in whole.items() if name.startswith(prefix)}
                assert {f"{prefix}{name}": raw for name, raw in files(folder).items()} == expected
        work(restoring, PosixDisk(), plan)
        assert files(restoring.to) == whole
    assert steps > 50
