"""Partition directories that are not what their names say."""

import shutil
from pathlib import Path

import pytest

from broker.client import Client, batch
from broker.running import Running, running
from kit.clock import FakeClock
from tierd.base.errors import StartRefused


@pytest.mark.parametrize("name", ["t.bak-0", "a-1"])
@pytest.mark.parametrize("registry", [True, False])
def test_a_copy_of_a_partition_under_another_name_is_refused_and_named(
    tmp_path: Path, name: str, registry: bool
) -> None:
    with running(tmp_path) as started, Client(started.address) as client:
        client.create("t")
    shutil.copytree(tmp_path / "data" / "t-0", tmp_path / "data" / name)
    if not registry:
        for path in (tmp_path / "state").glob("registry*"):
            path.unlink()
    started = Running(started.config, None, FakeClock())
    with pytest.raises(StartRefused, match=r"-\d has the id of topic \S+ \(.*: it is a copy"):
        started.start()
    started.call(lambda: started.directories[0].close(False))
    started.registry.close()
    started.end()
    shutil.rmtree(tmp_path / "data" / name)
    with running(tmp_path) as started, Client(started.address) as client:
        assert client.produce("t", batch()).base_offset == 0
