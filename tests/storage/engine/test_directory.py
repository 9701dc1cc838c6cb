"""Data directories: locks, identity, checkpoints, partitions that come and go."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kit.compaction import flush
from kit.logs import SMALL, T0, TOPIC_ID, TP, Place, batch, copy_recording, log_bytes
from tierd.base.errors import StartRefused
from tierd.storage.dirlock import DirectoryLock
from tierd.storage.progress import Progress


def test_one_process_at_a_time(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    code = (
        "import sys; from pathlib import Path; from tierd.base.errors import StartRefused\n"
        "from tierd.storage.dirlock import DirectoryLock\n"
        "try: DirectoryLock(Path(sys.argv[1]))\n"
        "except StartRefused as error: sys.exit(str(error))"
    )
    command = [sys.executable, "-c", code, str(place.data)]
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "in use" in refused.stderr
    directory.close(clean=True)
    assert subprocess.run(command, check=False).returncode == 0


def test_a_missing_directory_cannot_be_locked(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryLock(tmp_path / "missing")


def test_identity_is_made_once_and_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    ids = directory.directory_id, directory.cluster_id
    directory.close(clean=False)
    directory = place.open()
    assert (directory.directory_id, directory.cluster_id) == ids
    directory.close(clean=True)
    names = {path.name for path in place.data.iterdir()}
    assert names == {
        ".lock", "meta.properties", ".kafka_cleanshutdown", "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint", "log-start-offset-checkpoint",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("node_id", "cluster_id", "text"),
    [(2, None, "node 1's"), (1, "another", "cluster 6fmgaZE7TAOGXaa1yCC_Cg")],
)
def test_somebody_elses_directory_is_refused(node_id: int, cluster_id: str | None, text: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    copy_recording("clean", place.data, "tiny")
    with pytest.raises(StartRefused, match=text):
        place.open(node_id=node_id, cluster_id=cluster_id)
    place.open().close(clean=True)


def test_a_broken_identity_is_refused(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.data.mkdir()
    (place.data / "meta.properties").write_text("version=7\n")
    with pytest.raises(StartRefused, match="version"):
        place.open()


def test_checkpoints_say_what_kafkas_say(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.settings = replace(SMALL, remote_storage_enable=True)
    directory = place.open()
    log = place.new_log(directory)
    for i in range(40):
        log.append(batch(2, size=100), now_ms=T0 + i)
    job = log.unflushed()
    assert job is not None
    job.run()
    log.flushed(job)
    directory.write_checkpoints()

    def rows(name: str) -> list[str]:
        return (place.data / name).read_text().splitlines()

    active = log.view().active_base
    assert rows("recovery-point-offset-checkpoint") == ["0", "1", f"t 0 {active}"]
    assert rows("replication-offset-checkpoint") == ["0", "1", "t 0 80"]
    assert rows("log-start-offset-checkpoint") == ["0", "1", "t 0 0"]
    directory.close(clean=False)


def test_an_older_checkpoint_never_overwrites_a_newer_one(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    for i in range(40):
        log.append(batch(2, size=100), now_ms=T0 + i)
    old = directory.checkpoint_job()
    log.move_log_start(7)
    old()
    assert (place.data / "log-start-offset-checkpoint").read_text() == "0\n1\nt 0 7\n"
    directory.close(clean=False)


def test_a_broken_checkpoint_is_gone_without(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    place.new_log(directory).append(batch(), now_ms=T0)
    directory.close(clean=False)
    (place.data / "recovery-point-offset-checkpoint").write_text("nonsense")
    assert place.open().logs[TP].log_end == 1


def test_partitions_come_and_go(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    log.append(batch(), now_ms=T0)
    with pytest.raises(FileExistsError):
        directory.create(TP, TOPIC_ID, SMALL)
    directory.remove(TP)
    assert directory.logs == {}
    gone = [path for path in place.data.iterdir() if path.name.endswith("-delete")]
    assert len(gone) == 1
    assert directory.purge() == 0
    again = place.new_log(directory)
    assert again.log_end == 0
    directory.close(clean=True)
    directory = place.open()  # a deletion that was under way goes on
    assert directory.purge() > 4
    assert not gone[0].exists()
    directory.close(clean=True)


def test_a_new_partition_has_nothing_of_an_older_one_of_its_name(tmp_path: Path) -> None:
    """Not even when the machine stops before the checkpoints are written the next time."""
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    for i in range(40):
        log.append(batch(2, size=100), now_ms=T0 + i)
    flush(log)
    log.move_log_start(7)
    directory.write_checkpoints()
    directory.remove(TP)
    again = place.new_log(directory)
    for _ in range(4):
        again.append(batch(2), now_ms=T0)
    directory.close(clean=False)
    log = place.open().logs[TP]
    assert (log.log_start, log.log_end, log.recovery_point) == (0, 8, 0)


def test_a_half_made_partition_is_made_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    (place.data / f"{TP}").mkdir(parents=True)
    directory = place.open()
    assert list(directory.unidentified) == [TP]
    log = place.new_log(directory)
    assert directory.unidentified == {}
    log.append(batch(), now_ms=T0)
    directory.close(clean=True)
    assert place.open().logs[TP].log_end == 1


def test_the_registry_may_know_a_lost_topic_id(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    log.append(batch(), now_ms=T0)
    written = log_bytes(log)
    directory.close(clean=False)
    metadata = place.data / f"{TP}" / "partition.metadata"
    kept = metadata.read_bytes()
    metadata.unlink()
    directory = place.open(topic_id=TOPIC_ID)
    assert metadata.read_bytes() == kept
    assert log_bytes(directory.logs[TP]) == written
    directory.close(clean=True)


def test_strange_folders_are_left_alone(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for name in ("no partition", "__cluster_metadata-0", "x-0.00000000000000000000000000000000-stray"):
        (place.data / name).mkdir(parents=True)
    krafts = place.data / "__cluster_metadata-1"
    krafts.mkdir()
    (krafts / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    directory = place.open()
    assert directory.logs == {}
    assert directory.unidentified == {}
    assert len(directory.strange) == 4
    directory.close(clean=True)


def test_progress_is_told(tmp_path: Path) -> None:
    place = Place(tmp_path)
    copy_recording("final", place.data)
    told: list[Progress] = []
    directory = place.open(on_progress=told.append)
    assert {(one.directory, one.logs) for one in told} == {(place.data, 18)}
    assert [one.logs_left for one in told] == sorted((one.logs_left for one in told), reverse=True)
    assert told[-1] == Progress(place.data, 18, 0, 0, 0)
    directory.close(clean=False)


def test_a_clean_stop_leaves_nothing_to_recover(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    for i in range(40):
        log.append(batch(2, size=100), now_ms=T0 + i)
    directory.close(clean=True)
    marker = place.data / ".kafka_cleanshutdown"
    assert marker.read_text() == '{"version":0,"brokerEpoch":-1}'
    directory = place.open()
    assert not marker.exists()
    assert directory.logs[TP].recovery_point == 80
    directory.close(clean=False)
    assert not marker.exists()
