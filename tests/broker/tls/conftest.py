"""An authority and a server's certificate, for all tests of a file."""

import pytest

from kit.certificates import Authority, Signed


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def own(authority: Authority) -> Signed:
    return authority.sign("server")
