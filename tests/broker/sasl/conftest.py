"""A broker with users for the tests of a file, and a client that has said nothing yet."""

from collections.abc import Iterator

import pytest

from broker.client import Client
from broker.sasl.rig import Pair, asking


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with asking(tmp_path_factory.mktemp("sasl")) as pair:
        yield pair


@pytest.fixture
def client(rig: Pair) -> Iterator[Client]:
    with Client(rig[0].address) as connected:
        yield connected
