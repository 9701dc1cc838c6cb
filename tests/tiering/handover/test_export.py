"""What of a bucket gets into Kafka's topic, when some of it goes in between."""

from pathlib import Path

from kit.archived import aiven_bucket
from tierd.cli.surveying import survey
from tierd.config.load import Options, load
from tierd.storage.batch import walk
from tierd.tiering.handover.export import batches, make_values, plan_export


def test_a_manifest_that_goes_or_breaks_meanwhile_is_told(tmp_path: Path) -> None:
    bucket = aiven_bucket(tmp_path / "bucket", "plain")
    settings = load(Options(data=(tmp_path / "data",), remote=f"file:{bucket}"))
    seen: list[int] = []
    with survey(settings, f"file:{bucket}") as found:
        export = plan_export(found, ())
        gone, cut, *_ = sorted(bucket.glob("plain-*/0/*.rsm-manifest"))
        gone.unlink()
        cut.write_bytes(cut.read_bytes()[:40])
        made = make_values(found.bucket, export, partitions=1, node_id=0, now_ms=1, threads=2, progress=seen.append)
    assert [one.key for one in made.unreadable] == [one.relative_to(bucket).as_posix() for one in (gone, cut)]
    assert (export.segments, len(made.values[0]), seen) == (4, 4, [1, 2, 3, 4])


def test_a_long_log_has_several_batches() -> None:
    raw = b"".join(batches([b"value"] * 2500, 7))
    assert [(one.base_offset, one.count, one.max_timestamp_ms) for _, one in walk(raw)] == [
        (0, 1000, 7),
        (1000, 1000, 7),
        (2000, 500, 7),
    ]
