"""`tierd pause` and `tierd resume` with a whole daemon: what they say, and what goes on meanwhile."""

import json
from pathlib import Path

import pytest

from kit import cli, tiers
from kit.daemon import running

SMALL = ("--set", "segment.bytes=1MiB", "--set", "local.retention.ms=-1")


def test_reads_go_on_while_copying_is_paused_also_after_a_kill(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "bucket"

    def verb(*words: str, code: int = 0) -> cli.Ended:
        ended = cli.tierd(capsys, *words, "--data", tierd.data)
        assert ended.code == code, ended
        return ended

    with running(tmp_path / "data", f"file:{folder}", *SMALL) as tierd:
        sent = tiers.fill(tierd, "t", 3)
        verb("copy", "--wait")
        verb("evict")
        copied = tiers.bases(folder, "t")
        assert "would be paused" in verb("pause", "--dry-run").out
        assert json.loads(verb("resume", "--json").out)["changed"] is False
        said = json.loads(verb("pause", "--why", "the line is needed", "--json").out)
        assert (said["paused"], said["changed"], said["why"]) == (True, True, "the line is needed")
        more = tiers.fill(tierd, "t", 3, start=3 * tiers.PER_MIB)
        tierd.kill()
        tierd.start()
        tiers.read_back(tierd, "t", [*sent, *more])
        left = verb("copy", "--wait", code=3)
        assert "tierd pause holds all copies" in left.err
        assert tiers.bases(folder, "t") == copied
        assert "bucket: tierd pause holds all copies" in verb("status").out
        assert "tierd resume" in verb("why", "t-0").out
        assert "resumed" in verb("resume").out
        verb("copy", "--wait")
        assert len(tiers.bases(folder, "t")) > len(copied)
        assert "bucket:" not in verb("status").out
