"""A line to the S3 server that can be cut."""

from collections.abc import Iterator

import pytest

from kit.proxy import Proxy, through
from kit.weed import Weed


@pytest.fixture
def line(weed_server: Weed) -> Iterator[Proxy]:
    with through(weed_server.endpoint) as proxy:
        yield proxy
