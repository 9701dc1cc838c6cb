"""One log in one directory, for most tests of the engine."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.logs import Opened, Place
from tierd.storage.log import Log


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    place = Place(tmp_path)
    directory = place.open()
    opened = Opened(place, directory, place.new_log(directory))
    yield opened
    opened.directory.close(clean=False)


@pytest.fixture
def log(opened: Opened) -> Log:
    return opened.log
