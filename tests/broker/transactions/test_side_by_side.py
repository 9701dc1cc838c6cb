"""Clients at work side by side while the disk takes its time: log and memory agree, and each epoch has one owner."""

import asyncio
import dataclasses
from random import Random

import pytest

from tierd.broker.transactions.machine import TV2, Producer, Refused
from tierd.broker.transactions.ports import Question
from tierd.wire.errors import ErrorCode

from .rig import TIMEOUT_MS, A, B, Rig, S, run

NAMES = ("x", "y")
CLIENTS, REQUESTS = 4, 60


class World:
    def __init__(self, rig: Rig, dice: Random) -> None:
        self._rig = rig
        self._dice = dice
        self._owners: dict[tuple[str, int, int], int] = {}
        """Which client was given which id and epoch."""
        self._disk: list[asyncio.Future[None]] = []

    async def live(self) -> None:
        self._rig.log.slow = self._disk
        clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]
        while not all(client.done() for client in clients):
            await asyncio.sleep(0)
            self._weather()
            if self._dice.random() < 0.002:
                self._dice.choice(clients[1:]).cancel()  # its connection is gone; one stays to the end
        for client in clients:
            assert client.cancelled() or client.exception() is None, client
        await self._calm()

    def _weather(self) -> None:
        """Some of what was written gets to the disk; a partition fails, or works again."""
        for future in self._disk:
            if not future.done() and self._dice.random() < 0.3:
                future.set_result(None)
        errors = self._rig.markers.errors
        if self._dice.random() < (0.05 if errors else 0.001):
            self._rig.markers.errors = {} if errors else {self._dice.choice((A, B)): ErrorCode.KAFKA_STORAGE_ERROR}

    async def _calm(self) -> None:
        self._rig.log.slow, self._rig.markers.errors = None, {}
        for future in self._disk:
            if not future.done():
                future.set_result(None)
        for name in NAMES:
            await self._rig.until(name, S.EMPTY, S.ONGOING, S.COMPLETE_ABORT, S.COMPLETE_COMMIT)

    async def _client(self, number: int) -> None:
        owned: dict[str, Producer] = {}
        requests = 0
        while requests < REQUESTS:
            name = self._dice.choice(NAMES)
            try:
                owned[name] = await self._request(name, owned.get(name))
            except Refused as error:
                await asyncio.sleep(0)
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    owned.pop(name, None)
                continue
            requests += 1
            key = (name, owned[name].id, owned[name].epoch)
            assert self._owners.setdefault(key, number) == number, f"{key} has two owners"

    async def _request(self, name: str, owned: Producer | None) -> Producer:
        asked, transactions = self._dice.random(), self._rig.transactions
        if owned is None or asked < 0.1:
            given = owned if asked < 0.05 else None
            return Producer(*await transactions.init(name, TIMEOUT_MS, given))
        if asked < 0.6:
            refused = await transactions.verify(Question(name, owned.id, owned.epoch, [A, B]), add=True)
            assert refused or transactions.covers(Question(name, owned.id, owned.epoch, [A, B]))
            return owned
        return Producer(*await transactions.end(name, owned, commit=asked < 0.8, version=TV2))


@pytest.mark.parametrize("seed", range(20))
def test_log_and_memory_agree(seed: int) -> None:
    async def work(rig: Rig) -> None:
        await World(rig, Random(seed)).live()
        listed = await rig.transactions.listed()
        assert dict(rig.log.records()) == {
            name: dataclasses.replace(value, last_epoch=None) for name, value in listed.items()
        }
        markers = [(tp, *marker[:2]) for tp, written in rig.markers.written.items() for marker in written]
        assert len(markers) > 10
        assert len(markers) == len(set(markers)), "one epoch ended twice, each time another way"

    run(work)
