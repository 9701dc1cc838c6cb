"""`tierd import`: a Kafka's log directories in a bucket, without a broker; what is left, and what is refused."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kit.archived import serving, tree
from kit.cli import Ended, tierd
from kit.golden import golden
from kit.tiers import bases, head, until
from kit.traffic import consume_confluent
from tierd.base.ids import TopicPartition
from tierd.storage.batch import encode_batch
from tierd.storage.checkpoints import encode_checkpoint
from tierd.storage.records import Record

TOPICS = ("codec-none-0", "delrec-0", "txn-0")
CHECKPOINTS = ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint")
SEGMENTS = [0, 75, 150, 225, 300]
"""Where the closed ones of codec-none begin; they end at 350."""


class Place:
    """Log directories of a Kafka, a bucket, and the state directory between them."""

    def __init__(self, capsys: pytest.CaptureFixture[str], root: Path) -> None:
        self.capsys, self.source, self.bucket, self.state = capsys, root / "kafka", root / "bucket", root / "state"
        self.source.mkdir()

    def take(self, *names: str) -> None:
        """Into the source, what Kafka has left."""
        for name in names:
            found = golden("kafka") / "clean" / name
            if found.is_dir():
                shutil.copytree(found, self.source / name)
            else:
                shutil.copy(found, self.source / name)

    @property
    def words(self) -> list[str | Path]:
        return ["import", "--from", self.source, "--remote", f"file:{self.bucket}", "--state", self.state]

    def __call__(self, *words: str | Path) -> Ended:
        return tierd(self.capsys, *self.words, *words)

    def told(self, *words: str | Path) -> tuple[int, dict[str, Any]]:
        ended = self("--json", *words)
        return ended.code, json.loads(ended.out)

    def verified(self) -> list[str]:
        ended = tierd(self.capsys, "verify", "--deep", "--remote", f"file:{self.bucket}")
        assert ended.code == 0, ended.out
        return ended.out.splitlines()[:-1]

    def segments(self, name: str) -> list[Path]:
        return sorted((self.source / name).glob("*.log"))

    def cut(self, name: str, gone: Iterable[Path]) -> None:
        """Segments are not there (any more), nor what lies beside them."""
        for log in gone:
            for path in (self.source / name).glob(f"{log.stem}.*"):
                path.unlink()


@pytest.fixture
def place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Place:
    return Place(capsys, tmp_path)


def test_closed_segments_are_an_archive_then(place: Place, tmp_path: Path) -> None:
    place.take(*TOPICS, *CHECKPOINTS)
    before = tree(place.source)
    code, planned = place.told("--dry-run")
    active = [place.segments(name)[-1].stat().st_size for name in TOPICS]
    assert (planned["active_segments"], planned["active_bytes"]) == (sum(map(bool, active)), sum(active))
    assert (code, place.bucket.exists(), place.state.exists()) == (0, False, False)
    code, done = place.told()
    assert code == 3
    assert (done["outcome"], done["segments"], done["bytes"]) == ("pinned", planned["segments"], planned["bytes"])
    assert [(one["topic"], "transaction of producer" in one["reason"]) for one in done["left"]] == [("txn", True)]
    assert tree(place.source) == before
    assert place.verified() == [
        "codec-none-0: OK: offsets 0 to 349",
        "delrec-0: OK: offsets 137 to 224",
        "txn-0: OK: offsets 0 to 269",
    ]
    to = tmp_path / "restored"
    assert tierd(place.capsys, "restore", "--keep-ids", "--remote", f"file:{place.bucket}", "--to", to).code == 0
    for name in ("codec-none-0", "txn-0"):
        there = [path for path in sorted((to / name).glob("*.log")) if path.stat().st_size]
        assert [path.read_bytes() for path in there] == [
            path.read_bytes() for path in place.segments(name)[: len(there)]
        ]
        assert len(there) >= 5
    code, again = place.told()
    assert (code, again["segments"]) == (3, 0)


def test_an_archive_serves_it(place: Place, tmp_path: Path) -> None:
    place.take("codec-none-0")
    ended = place()
    assert (ended.code, "not imported: 1 active segments, " in ended.err) == (0, True)
    with serving(place.bucket, tmp_path / "archive") as archive:
        host, port = archive.address
        read = consume_confluent(f"{host}:{port}", "codec-none", 0, 350)
    assert [one.offset for one in read] == list(range(350))


def test_topics_by_pattern_and_what_is_left_out(place: Place) -> None:
    place.take(*TOPICS)
    (place.source / "delrec-0" / "partition.metadata").unlink()
    code, told = place.told("--topic", "codec-*", "--topic", "delrec")
    assert (code, told["segments"], told["outcome"]) == (1, 5, "done")
    assert [(one["topic"], "partition.metadata" in one["reason"]) for one in told["left"]] == [("delrec", True)]
    assert bases(place.bucket, "codec-none") == SEGMENTS
    assert head(place.bucket, "codec-none")["copied_to"] == 350
    assert place("--topic", "nothing-*").code == 2


def test_a_later_import_goes_on_and_keeps_what_its_writer_has_let_go(place: Place) -> None:
    place.take("codec-none-0")
    logs = place.segments("codec-none-0")
    place.cut("codec-none-0", logs[3:])
    assert place().code == 0
    assert bases(place.bucket, "codec-none") == SEGMENTS[:2]
    shutil.rmtree(place.source / "codec-none-0")
    place.take("codec-none-0")
    place.cut("codec-none-0", logs[:2])
    assert place().code == 0
    assert bases(place.bucket, "codec-none") == SEGMENTS
    assert place.verified() == ["codec-none-0: OK: offsets 0 to 349"]


def test_offsets_that_went_before_they_were_imported_are_told(place: Place) -> None:
    place.take("codec-none-0")
    logs = place.segments("codec-none-0")
    place.cut("codec-none-0", logs[3:])
    assert place().code == 0
    shutil.rmtree(place.source / "codec-none-0")
    place.take("codec-none-0", "delrec-0")
    place.cut("codec-none-0", logs[:3])
    code, told = place.told()
    assert code == 1
    assert [one["reason"] for one in told["left"]] == ["offsets 150 to 224 were deleted before they were imported"]
    assert bases(place.bucket, "codec-none") == SEGMENTS[:2]


def test_what_is_not_flushed_waits(place: Place) -> None:
    place.take("codec-none-0")
    points = {TopicPartition("codec-none", 0): 160}
    (place.source / CHECKPOINTS[1]).write_bytes(encode_checkpoint(points))
    code, told = place.told()
    assert (code, told["outcome"]) == (3, "done")
    assert told["left"][0]["reason"] == "from offset 150 on its writer has not flushed it yet"
    assert bases(place.bucket, "codec-none") == SEGMENTS[:2]


def test_a_prefix_of_somebody_else_is_refused(place: Place, tmp_path: Path) -> None:
    place.take("codec-none-0")
    assert place().code == 0
    there = tree(place.bucket)
    other = tierd(place.capsys, *place.words[:-1], tmp_path / "other")
    assert other.code == 4
    assert "is claimed by somebody else" in other.err
    assert "name another one (--remote)" in other.err
    assert "tierd serve" not in other.err
    assert tree(place.bucket).keys() == there.keys()
    (place.state / "registry.sqlite").touch()
    assert place().code == 4


def test_one_that_was_killed_goes_on(place: Place) -> None:
    """Held up by a limit, it is killed in the middle; what it has copied is not copied again."""
    place.take("codec-none-0", "idempotent-0")
    slow = ["--set", "remote.upload.bytes.per.second=8KiB", "--set", "remote.copy.threads=1"]
    command = [sys.executable, "-m", "tierd", *map(str, place.words), *slow]

    def committed() -> int:
        return len(bases(place.bucket, "codec-none")) + len(bases(place.bucket, "idempotent"))

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        until("a segment is there", lambda: committed() > 0)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    before = committed()
    assert 0 < before < 10
    code, told = place.told()
    assert (code, told["left"], committed()) == (0, [], 10)
    assert 10 - before - 1 <= told["segments"] <= 10 - before
    assert len(place.verified()) == 2


def test_partitions_that_come_later_count_too(place: Place) -> None:
    """No run of an import appends anything: what has an older epoch than its claim counts whenever it comes."""
    place.take("codec-none-0", "idempotent-0")
    place.cut("idempotent-0", place.segments("idempotent-0")[3:])
    assert place().code == 0
    assert place("--topic", "codec-none").code == 0
    shutil.rmtree(place.source / "idempotent-0")
    place.take("idempotent-0")
    shutil.copytree(place.source / "codec-none-0", place.source / "codec-none-1")
    assert place().code == 0
    assert place.verified() == [
        "codec-none-0: OK: offsets 0 to 349",
        "codec-none-1: OK: offsets 0 to 349",
        "idempotent-0: OK: offsets 0 to 359",
    ]


def test_active_segments_of_a_kafka_that_was_stopped_for_good(place: Place) -> None:
    place.take(*TOPICS, "multi-1")
    ended = place("--active")
    assert (ended.code, place.bucket.exists()) == (4, False)
    place.take(*CHECKPOINTS, ".kafka_cleanshutdown")
    before = tree(place.source)
    assert place("--active").code == 0
    assert tree(place.source) == before
    ends = {name: line.rpartition(" ")[2] for line in place.verified() for name in [line.partition(":")[0]]}
    assert set(ends) == {"codec-none-0", "delrec-0", "multi-1", "txn-0"}
    assert ends["txn-0"] == "383"
    with place.segments("multi-1")[0].open("ab") as log:
        log.write(encode_batch([Record(int(ends["multi-1"]) + 1, 1, None, b"more")]))
    code, told = place.told("--active", "--topic", "codec-*")
    assert (code, told["active_segments"], told["active_bytes"]) == (0, 0, 0)
    code, told = place.told("--active", "--topic", "multi")
    assert (code, [one["reason"] for one in told["left"]]) == (
        1,
        ["segment 0 has grown since it was imported as an active one"],
    )


def test_a_source_that_is_not_there_is_refused_and_nothing_is_made(place: Place) -> None:
    place.source.rmdir()
    for words in ((), ("--dry-run",)):
        ended = place(*words)
        assert (ended.code, "kafka: there is no such directory" in ended.err) == (2, True)
    assert not place.state.exists()
