"""A daemon whose bucket is compressed and encrypted: keys come and go, offsets stay readable, no secret is seen."""

from pathlib import Path

import pytest

from kit import traffic
from kit.daemon import Daemon
from kit.tiers import copy, evict, read_back
from tierd.cli.client import ask
from tierd.cli.main import run

pytestmark = pytest.mark.e2e

RECORDS = 3000


def settings(file: Path, bucket: Path, keys: list[Path], active: Path) -> None:
    files = ", ".join(f'"{one}"' for one in keys)
    file.write_text(
        f'[remote]\nurl = "file:{bucket}"\ncompression = "zstd"\nchunk.bytes = "64KiB"\n[remote.encryption]\n'
        f'key.active = "{active.stem}"\nkey.files = [{files}]\n[defaults]\nsegment.bytes = "1MiB"\n'
    )


def test_keys_come_and_go_and_every_offset_stays_readable(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, bucket, toml = tmp_path / "old.pem", tmp_path / "new.pem", tmp_path / "bucket", tmp_path / "tierd.toml"
    for file in (old, new):
        assert run(["keys", "add", str(file)]) == 0
    sent = list(traffic.stream("whole", 0, RECORDS, 1000))
    settings(toml, bucket, [old], old)
    daemon = Daemon(tmp_path / "data", extra=("-c", str(toml)))
    try:
        daemon.start()
        traffic.produce_confluent(daemon.address, "whole", sent)
        copy(daemon, roll=True)
        evict(daemon)
        assert daemon.partition("whole")["local_start"] == RECORDS
        read_back(daemon, "whole", sent)
        objects = [path.read_bytes() for path in bucket.glob("whole-*/0/*.log")]
        assert sum(map(len, objects)) < RECORDS * 500
        assert not any(sent[RECORDS // 2].value[:32] in raw for raw in objects)
        assert daemon.stop() == 0

        settings(toml, bucket, [old, new], new)
        daemon.start()
        dry = ask(daemon.control, "rotate keys", dry_run=True)
        done = ask(daemon.control, "rotate keys")
        assert (dry.exit, done.exit) == (0, 0)
        assert done.result["segments"] == dry.result["segments"] == len(objects)
        assert [(row["id"], row["active"], row["segments"]) for row in ask(daemon.control, "keys").result] == [
            ("new", True, len(objects)),
            ("old", False, 0),
        ]
        assert daemon.stop() == 0

        settings(toml, bucket, [new], new)
        daemon.start()
        read_back(daemon, "whole", sent)
        assert daemon.stop() == 0
    finally:
        daemon.kill()
    assert run(["config", "show", "--effective", "--data", str(tmp_path / "data"), "-c", str(toml)]) == 0
    shown = capsys.readouterr()
    said = daemon.log.read_text() + shown.out + shown.err
    secrets = [line for file in (old, new) for line in file.read_text().splitlines() if "-----" not in line]
    assert not [line for line in secrets if line in said]
