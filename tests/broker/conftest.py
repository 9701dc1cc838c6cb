"""A broker in this process, and a client of it; a test file may have a broker of its own kind."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.client import Client
from broker.running import Running, running


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as started:
        yield started


@pytest.fixture
def client(broker: Running) -> Iterator[Client]:
    with Client(broker.address) as connected:
        yield connected
