"""The power goes at every step of transactions over two partitions, where all that is answered is on the disk.

Whatever was told is true afterwards, each transaction is whole or not at all, and none stays open.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest

from broker.client import Client, batch
from broker.running import Running, settings
from kit.machine import hang_up
from kit.model_disk import ModelDisk, PowerCut
from tierd.base.clock import SystemClock
from tierd.config.coordination import Transactions
from tierd.storage.batch import ControlType, parse_control
from tierd.storage.header import TRANSACTIONAL
from tierd.storage.records import iter_records
from tierd.wire.api import ApiKey
from tierd.wire.errors import ErrorCode

PARTITIONS = 2
OUTCOMES = (True, False, True)


@dataclass
class Told:
    """What the client was told."""

    ended: dict[int, bool] = field(default_factory=dict)
    """By number of the transaction: committed or aborted."""
    producers: list[tuple[int, int]] = field(default_factory=list)


@contextmanager
def booted(root: Path, disk: ModelDisk, dies_after: int | None = None) -> Iterator[tuple[Running, Client]]:
    """A broker and its client until the power goes, so many steps later; raises PowerCut then."""
    durable = {"tierd.acks.durability": "disk"}
    config = settings(root, set_overrides=durable, transactions=Transactions(topic_partitions=1))
    broker = Running(config, None, SystemClock())
    broker.disk = disk
    disk.power_on()
    broker.start()
    try:
        with Client(broker.address) as client:
            disk.power_on(dies_after, lambda: hang_up(client._sock))
            yield broker, client
    except ConnectionError as error:
        raise PowerCut from error
    except AssertionError as error:
        if disk.dies_at is None or disk.steps < disk.dies_at:
            raise
        raise PowerCut from error  # what a broker says in the very moment reaches nobody
    finally:
        with suppress(PowerCut):
            broker.run(broker.broker.stop(quick=True))
        for directory in broker.directories:
            with suppress(PowerCut):
                broker.call(lambda directory=directory: directory.close(False))  # type: ignore[misc]
        broker.registry.close()
        broker.end()


def init(client: Client) -> tuple[int, int]:
    """What every client does when it begins: waits until the open transaction is ended."""
    while True:
        answer = client.call(ApiKey.INIT_PRODUCER_ID, 5, transactional_id="x", transaction_timeout=60_000)
        if answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
            assert answer.error_code == ErrorCode.NONE
            return answer.producer_id, answer.producer_epoch


def work(client: Client, told: Told) -> None:
    producer_id, epoch = init(client)
    told.producers.append((producer_id, epoch))
    for number, commit in enumerate(OUTCOMES):
        for partition in range(PARTITIONS):
            raw = batch(
                1, size=number, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, attributes=TRANSACTIONAL
            )
            answer = client.produce("t", raw, partition, version=12, transactional_id="x")
            assert answer.error_code == ErrorCode.NONE
        ended = client.call(
            ApiKey.END_TXN, 5, transactional_id="x", producer_id=producer_id, producer_epoch=epoch, committed=commit
        )
        assert ended.error_code == ErrorCode.NONE
        told.ended[number] = commit
        producer_id, epoch = ended.producer_id, ended.producer_epoch
        told.producers.append((producer_id, epoch))


def visible(broker: Running, partition: int) -> set[int]:
    """Numbers of the transactions that a reader of committed records sees; none may be open."""
    log = broker.log("t", partition)
    open_: dict[int, list[int]] = {}
    seen: set[int] = set()
    for header, raw in broker.call(lambda: list(log.batches())):
        (record,) = iter_records(raw, header)
        if not header.control:
            open_.setdefault(header.producer_id, []).append(len(bytes(record.value or b"")))
            continue
        written = open_.pop(header.producer_id, [])
        if parse_control(record)[0] == ControlType.COMMIT:
            seen.update(written)
    assert open_ == {}
    assert log.last_stable == log.log_end
    return seen


def check(broker: Running, client: Client, told: Told) -> None:
    producer = init(client)
    assert all(known[0] != producer[0] or known[1] < producer[1] for known in told.producers)
    seen = [visible(broker, partition) for partition in range(PARTITIONS)]
    assert seen[0] == seen[1]
    for number, commit in told.ended.items():
        assert (number in seen[0]) is commit
    assert seen[0] <= {number for number, commit in enumerate(OUTCOMES) if commit}


def model(root: Path) -> ModelDisk:
    """All but the registry, whose commits survive."""
    return ModelDisk(root, foreign=lambda path: root / "state" in path.parents)


def lived(root: Path, told: Told, dies_after: int | None) -> ModelDisk:
    """The topic is there; then transactions, until the power goes after so many steps."""
    root.mkdir()
    disk = model(root)
    with booted(root, disk) as (_, client):
        client.create("t", PARTITIONS)
        init(client)  # makes the coordinator's topic
    with suppress(PowerCut), booted(root, disk, dies_after) as (_, client):
        work(client, told)
    return disk


@pytest.mark.parametrize("part", range(3))
def test_whole_or_not_at_all(tmp_path: Path, part: int) -> None:
    whole = lived(tmp_path / "whole", Told(), None)
    decided = 0
    for dies_after in range(1 + 4 * part, whole.steps, 12):
        root, told = tmp_path / f"life{dies_after}", Told()
        disk = lived(root, told, dies_after)
        disk.lose_unsynced(Random(dies_after) if dies_after % 2 else None)
        try:
            with booted(root, model(root)) as (broker, client):
                check(broker, client, told)
        except Exception as error:
            error.add_note(f"step {dies_after}: {disk.trace[-8:]}")
            raise
        decided += len(told.ended)
    assert decided > 0
