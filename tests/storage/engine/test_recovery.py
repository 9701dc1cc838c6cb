"""After an unclean stop: Kafka's own recordings of a killed and of a damaged broker, and what we made safer."""

from pathlib import Path

import pytest

from kit.golden import golden, partitions
from kit.logs import SMALL, T0, TOPIC_ID, TP, Place, batch, by_time, copy_recording, log_bytes, slice_bytes
from tierd.base.ids import TopicPartition
from tierd.storage.epochs import parse_epochs
from tierd.storage.errors import ProducerFenced, ReadOnly
from tierd.storage.log import Log
from tierd.storage.names import Suffix, segment_file
from tierd.storage.snapshot import parse_snapshot

RECOVERED = ["codec-none", "compacted", "hanging", "idempotent", "txn"]


def kafkas(recording: str, topic: str) -> Path:
    return golden("kafka") / recording / f"{topic}-0"


def differing(ours: Path, want: Path) -> set[str]:
    """Names of files that only one side has, or whose bytes differ."""
    names = {path.name for folder in (ours, want) for path in folder.iterdir() if path.suffix != ".deleted"}
    return {name for name in names if read(ours / name) != read(want / name)}


def read(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def test_a_killed_broker_recovers_to_kafkas_files(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.adopt("killed")
    for topic in RECOVERED:
        log = directory.logs[TopicPartition(topic, 0)]
        assert log.cuts == []
        log.begin(parse_epochs((kafkas("recovered", topic) / "leader-epoch-checkpoint").read_bytes())[-1].epoch, 0)
    directory.close(clean=True)
    for topic in RECOVERED:
        ours, want = place.data / f"{topic}-0", kafkas("recovered", topic)
        for name in differing(ours, want):
            # Kafka forgets producers whose records are old; we remember them.
            assert name.endswith(".snapshot"), (topic, name)
            mine = {entry.producer_id: entry for entry in parse_snapshot((ours / name).read_bytes())}
            assert set(parse_snapshot((want / name).read_bytes())) <= set(mine.values())
        names = {path.name for path in want.iterdir()}
        assert {path.name for path in ours.iterdir()} == names


CUT = {
    "torn-tail", "garbage-tail", "flip-last", "flip-mid", "batch-longer-than-file", "undecided-txn-torn",
}  # fmt: skip
"""Kinds whose bytes are cut and set aside; a tail of zeros is cut, too, but zeros are not kept."""
OURS, KAFKAS = "only we have it", "only Kafka has it"
NOT_LIKE_KAFKA = {
    "no-index": (
        "Kafka reads the segment without index again and forgets the snapshots behind it; we keep them",
        {"00000000000000000105.snapshot": OURS, "00000000000000000135.snapshot": OURS},
    ),
    "leftover-deleted": (
        "Kafka drops the snapshot at log start; it is the producers' memory of all that has gone",
        {"00000000000000000035.snapshot": OURS},
    ),
    "no-timeindex": (
        "Kafka makes an empty file, and look-ups by time answer -1 from then on; we rebuild it",
        {"00000000000000000035.timeindex": "48 bytes, Kafka 0"},
    ),
    "flip-mid": (
        "Kafka throws away every segment behind the broken batch; we cut the one segment and keep the others",
        {
            "00000000000000000035.index": "8 bytes, Kafka 2048",
            "00000000000000000035.timeindex": "12 bytes, Kafka 2040",
            "00000000000000000045.snapshot": KAFKAS,
            **{
                f"{base:020d}.{suffix}": OURS
                for base in (70, 105, 135, 165, 195)
                for suffix in ("log", "index", "timeindex", "snapshot")
            },
            "00000000000000000200.snapshot": OURS,
            "leader-epoch-checkpoint": "14 bytes, Kafka 13",
        },
    ),
}
"""Files that differ from Kafka's after the start, and why they do; every other file of every kind is the same."""
KINDS = sorted(path.name[len("rd-") : -len("-0")] for path in partitions("kafka", "damaged"))


def test_all_kinds_of_damage_are_looked_at() -> None:
    assert len(KINDS) == 24  # 23 kinds and a control
    assert set(NOT_LIKE_KAFKA) | CUT < set(KINDS)


@pytest.mark.parametrize("kind", sorted(set(KINDS) - {"no-partition-metadata"}))
def test_damage_is_repaired_as_kafka_does(kind: str, tmp_path: Path) -> None:
    topic = f"rd-{kind}"
    place = Place(tmp_path)
    directory = place.adopt("damaged", topic)
    log = directory.logs[TopicPartition(topic, 0)]
    log.begin(2, 0)
    assert bool(log.cuts) == (kind in CUT)
    assert len(list(place.set_aside.rglob("*.log.*"))) == len(log.cuts)
    _, different = NOT_LIKE_KAFKA.get(kind, ("", {}))
    assert compared(log.directory, kafkas("repaired", topic)) == different
    directory.close(clean=False)


def compared(ours: Path, want: Path) -> dict[str, str]:
    """How each file that differs does."""
    found = {}
    for name in differing(ours, want):
        mine, theirs = read(ours / name), read(want / name)
        if mine is None:
            found[name] = KAFKAS
        else:
            found[name] = OURS if theirs is None else f"{len(mine)} bytes, Kafka {len(theirs)}"
    return found


def test_a_broken_middle_keeps_all_that_is_good(tmp_path: Path) -> None:
    """Kafka throws every later segment away; we cut the broken one only and set the bytes aside."""
    place = Place(tmp_path)
    directory = place.adopt("damaged", "rd-flip-mid")
    log = directory.logs[TopicPartition("rd-flip-mid", 0)]
    assert (log.log_start, log.log_end) == (0, 200)
    assert [(cut.base, cut.next_offset) for cut in log.cuts] == [(35, 45)]
    assert log.gaps == ((45, 70),)
    assert "00000000000000000035.log.587-1987" in place.set_aside_files()
    source = golden("kafka") / "damaged" / "rd-flip-mid-0"
    whole = {path.name: path.read_bytes() for path in sorted(source.glob("*.log"))}
    whole["00000000000000000035.log"] = whole["00000000000000000035.log"][:587]
    assert log_bytes(log) == b"".join(whole[name] for name in sorted(whole))
    directory.close(clean=True)
    again = place.open()
    assert again.logs[log.name].gaps == ((45, 70),), "a later start, clean or not, still knows"
    again.logs[log.name].move_log_start(70)
    again.close(clean=True)
    assert place.open().logs[log.name].gaps == ()


@pytest.mark.parametrize("kind", ["bad-index", "bad-index-size", "no-timeindex"])
def test_wrong_indexes_below_the_recovery_point_are_rebuilt(kind: str, tmp_path: Path) -> None:
    topic = f"rd-{kind}"
    log = Place(tmp_path).adopt("damaged", topic).logs[TopicPartition(topic, 0)]
    control = golden("kafka") / "damaged" / "rd-control-0"
    assert b"".join(path.read_bytes() for path in sorted(control.glob("*.log")))[:4] == bytes(4)
    for offset in range(log.log_end):
        raw = slice_bytes(log, offset, 1)
        assert int.from_bytes(raw[:8], "big") <= offset
    found = by_time(log, 0)
    assert found is not None
    assert found.offset == 0
    late = by_time(log, found.timestamp_ms + 40_000)
    assert late is not None
    assert late.timestamp_ms == found.timestamp_ms + 40_000


def test_a_directory_without_partition_metadata_is_read_and_no_more(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.adopt("damaged", "rd-no-partition-metadata")
    tp = TopicPartition("rd-no-partition-metadata", 0)
    assert directory.logs == {}
    assert list(directory.unidentified) == [tp]
    log = directory.read_only[tp]
    source = golden("kafka") / "damaged" / "rd-no-partition-metadata-0"
    assert log_bytes(log) == b"".join(path.read_bytes() for path in sorted(source.glob("*.log")))
    with pytest.raises(ReadOnly, match="nobody knows its topic's id"):
        log.append(batch(), now_ms=T0)
    with pytest.raises(ReadOnly):
        log.end_transaction(7, 0, 0, commit=True, now_ms=T0)
    before = log_bytes(log)
    directory.close(clean=True)
    assert not (directory.unidentified[tp] / "partition.metadata").exists()
    kept = (directory.path / "recovery-point-offset-checkpoint").read_text()
    assert "rd-no-partition-metadata 0 0" in kept.splitlines()
    directory = place.open(topic_id=TOPIC_ID)
    assert directory.read_only == {}
    assert log_bytes(directory.logs[tp]) == before
    directory.close(clean=True)


def fill(log: Log, batches: int = 40, producer: int | None = 5) -> bytes:
    out = b""
    for i in range(batches):
        raw = batch(3, size=100, producer=None if producer is None else (producer, 0, i * 3))
        log.append(raw, now_ms=T0 + i)
        out += bytes(raw)
    return out


def test_nothing_is_lost_when_the_process_dies(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    written = fill(log)
    assert len(log.closed()) > 2
    directory.close(clean=False)  # nothing is flushed or trimmed: what a kill leaves
    again = place.open().logs[TP]
    assert (again.log_end, again.cuts) == (120, [])
    assert log_bytes(again) == written
    again.begin(1, 0)
    duplicate = again.append(batch(3, size=100, producer=(5, 0, 117)), now_ms=T0)
    assert (duplicate.duplicate, duplicate.first_offset) == (True, 117)
    with pytest.raises(ProducerFenced):
        again.append(batch(3, producer=(5, -1, 0)), now_ms=T0)


def test_an_unclean_start_gives_the_same_files_as_a_clean_stop(tmp_path: Path) -> None:
    clean, killed = Place(tmp_path / "clean"), Place(tmp_path / "killed")
    for place, cleanly in ((clean, True), (killed, False)):
        directory = place.open()
        fill(place.new_log(directory))
        directory.close(clean=cleanly)
    directory = killed.open()
    directory.close(clean=True)
    assert differing(clean.data / f"{TP}", killed.data / f"{TP}") == set()


def test_only_segments_from_the_recovery_point_on_are_read_again(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    fill(log)
    job = log.unflushed()
    assert job is not None
    job.run()
    log.flushed(job)
    directory.write_checkpoints()
    directory.close(clean=False)
    first = place.data / f"{TP}" / segment_file(0, Suffix.LOG)
    broken = bytearray(first.read_bytes())
    broken[200] ^= 1
    first.write_bytes(broken)
    again = place.open().logs[TP]
    assert again.cuts == []  # it lies below the recovery point: scrub will find it
    assert again.log_end == 120


def test_a_missing_epoch_file_is_rebuilt_from_the_batches(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 20)
    log.begin(4, 0)
    fill(log, 20, producer=6)
    epochs = log.epochs
    directory.close(clean=True)
    (place.data / f"{TP}" / "leader-epoch-checkpoint").unlink()
    assert place.open().logs[TP].epochs == epochs


def test_the_epoch_at_the_log_end_without_records_is_kept(tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    fill(log, 1)
    log.begin(7, 0)
    directory.close(clean=True)
    assert place.open().logs[TP].leader_epoch == 7


@pytest.mark.parametrize("clean", [True, False])
def test_producers_survive_without_any_snapshot(clean: bool, tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    fill(place.new_log(directory))
    directory.close(clean=clean)
    for path in (place.data / f"{TP}").glob("*.snapshot"):
        path.unlink()
    directory = place.open()
    log = directory.logs[TP]
    log.begin(1, 0)
    assert log.append(batch(3, size=100, producer=(5, 0, 117)), now_ms=T0).duplicate
    snapshots = {path.name for path in log.directory.glob("*.snapshot")}
    bases = {segment_file(view.next_base, Suffix.SNAPSHOT) for view in log.closed()}
    assert bases <= snapshots


def test_a_half_done_eviction_leaves_no_hole(tmp_path: Path) -> None:
    """Renames that were to go oldest first, but of which a later one is on the disk and an earlier one is not."""
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    written = fill(log)
    views = log.closed()
    directory.close(clean=False)
    second = views[1].base
    for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX):
        path = place.data / f"{TP}" / segment_file(second, suffix)
        path.rename(path.with_name(path.name + ".deleted"))
    again = place.open().logs[TP]
    assert (again.local_start, again.gaps) == (0, ())
    assert log_bytes(again) == written
    assert place.set_aside_files() == []


@pytest.mark.parametrize("marked", [(0,), (0, 1)])
def test_a_removal_from_the_oldest_on_is_finished(marked: tuple[int, ...], tmp_path: Path) -> None:
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    fill(log)
    views = log.closed()
    directory.close(clean=True)
    for number in marked:
        for path in (place.data / f"{TP}").glob(f"{views[number].base:020d}.*"):
            path.rename(path.with_name(path.name + ".deleted"))
    assert place.open().logs[TP].local_start == views[len(marked)].base
    assert not list((place.data / f"{TP}").glob("*.deleted"))


def test_what_compaction_has_replaced_does_not_come_back(tmp_path: Path) -> None:
    """Kafka marks all segments that a cleaned one was made of; the topic's policy may not be known here."""
    place = Place(tmp_path)
    directory = place.open()
    log = place.new_log(directory)
    fill(log)
    views = log.closed()
    directory.close(clean=True)
    folder = place.data / f"{TP}"
    for suffix in (Suffix.LOG, Suffix.INDEX, Suffix.TIME_INDEX):
        old = folder / segment_file(0, suffix)
        (folder / f"{old.name}.deleted").write_bytes(old.read_bytes())
        second = folder / segment_file(views[1].base, suffix)
        second.rename(folder / f"{second.name}.deleted")
    again = place.open().logs[TP]
    assert (again.local_start, again.gaps) == (0, ())
    assert [view.base for view in again.closed()] == [0, *(view.base for view in views[2:])]


@pytest.mark.parametrize("recording", ["killed", "final"])
def test_holes_of_compaction_are_no_loss_even_when_the_policy_is_not_known(recording: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    copy_recording(recording, place.data, "compacted")
    directory = place.open(settings=SMALL)
    log = directory.logs[TopicPartition("compacted", 0)]
    assert log.gaps == ()
    last = max((place.data / "compacted-0").glob("*.log"))
    assert log.log_end >= int(last.stem) > 0
    directory.close(clean=False)


def test_what_was_lost_while_nobody_knew_the_topic_is_known_later(tmp_path: Path) -> None:
    place, tp = Place(tmp_path), TopicPartition("rd-flip-mid", 0)
    copy_recording("damaged", place.data, tp.topic)
    metadata = place.data / str(tp) / "partition.metadata"
    kept = metadata.read_bytes()
    metadata.unlink()
    directory = place.open()
    assert directory.read_only[tp].gaps == ((45, 70),)
    directory.close(clean=True)
    metadata.write_bytes(kept)
    for _ in range(2):
        directory = place.open()
        assert directory.logs[tp].gaps == ((45, 70),)
        directory.close(clean=True)
    notes = [name for name in place.set_aside_files() if name.startswith("gaps-")]
    assert len(notes) == 1
