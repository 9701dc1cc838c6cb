"""A look at a whole bucket: one that tierd wrote, damaged in all ways, and those that a real Kafka wrote."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from kit.aiven import recorded_ring
from kit.bucket import in_weed
from kit.clock import FakeClock
from kit.golden import golden
from kit.tierer_bench import KEYS, Bench, drive, who
from kit.weed import Weed
from tierd.base.clock import SystemClock
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.remote import crc
from tierd.remote.errors import RequestRefused
from tierd.remote.file import FileStore
from tierd.remote.heads import HEAD, Gap, read_head
from tierd.remote.keys import Keys
from tierd.remote.manifest import encode_manifest, parse_manifest
from tierd.remote.open import Bucket
from tierd.remote.store import ObjectStore
from tierd.storage.disk import PosixDisk
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.run import NothingThere, Progress, Report, Verify
from tierd.tiering.verify.spending import Budget, CountedStore
from tierd.tiering.verify.standing import PartitionReport, Standing, begin, keep, load
from tierd.tiering.verify.verdicts import Verdict

FRESH = Standing(url="memory:", deep=False, percent=100.0)
DEEP = replace(FRESH, deep=True)


@dataclass
class Looked:
    """Runs verify, one after the other, as the verb does."""

    bucket: Bucket
    kept: Standing | None = None
    seen: list[Progress] = field(default_factory=list)

    def __call__(
        self, fresh: Standing = DEEP, *, budget: Budget | None = None, anew: bool = False, threads: int = 3
    ) -> Report:
        def keep_it(standing: Standing) -> None:
            self.kept = standing

        return Verify(
            self.bucket,
            FakeClock(),
            begin(self.kept, fresh, anew=anew),
            budget=budget or Budget(),
            threads=threads,
            keep=keep_it,
            report=self.seen.append,
        ).run()


def told(report: Report) -> list[tuple[Verdict, int, int]]:
    (one,) = report.standing.reports
    return [(found.verdict, found.start, found.stop) for found in one.ranges]


def reasons(report: Report) -> str:
    return "\n".join(text for one in report.standing.reports for found in one.ranges for text in found.reasons)


def with_copy(tmp_path: Path, work: Callable[[Bench, Looked, list[RemoteSegment]], None]) -> None:
    """A partition of several segments, all copied, its head written."""

    async def run(bench: Bench) -> None:
        view = bench.adopt("codec-none-0")
        await bench.open(who())
        await bench.copy()
        await bench.tierer.publish_head(view.id)
        rows = [row.remote for row in bench.catalog.segments(view.id)]
        assert len(rows) > 3
        work(bench, Looked(Bucket(bench.store, KEYS, "memory:")), rows)

    drive(tmp_path, run)


def replaced(store: ObjectStore, key: str, change: Callable[[bytes], bytes]) -> None:
    """Other bytes under the same key; user metadata stays, as a bit that rots leaves it."""
    info, raw = store.get_with_info(key)
    new = change(raw)
    store.put(key, new, crc32c=crc.crc32c(new), metadata=info.metadata)


def flip(raw: bytes) -> bytes:
    return raw[:-1] + bytes([raw[-1] ^ 1])


@pytest.mark.parametrize("fresh", [FRESH, DEEP], ids=["stated", "deep"])
def test_a_bucket_that_is_whole(tmp_path: Path, fresh: Standing) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        report = look(fresh)
        assert report.verdict is Verdict.OK
        assert report.complete
        assert told(report) == [(Verdict.OK, 0, rows[-1].next_base)]
        (one,) = report.standing.reports
        assert (one.segments, one.looked_into) == (len(rows), len(rows))
        assert look.seen[-1].segments_done == len(rows)
        assert report.standing.requests >= 3 * len(rows)
        data = sum(row.size_bytes + row.indexes_bytes for row in rows)
        assert (report.standing.bytes >= data) is fresh.deep

    with_copy(tmp_path, work)


@pytest.mark.parametrize("kind", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("named", [True, False], ids=["named by the head", "head gone"])
def test_an_object_that_is_gone(tmp_path: Path, kind: str, named: bool) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        bench.store.delete([rows[2].stem + kind])
        if not named:
            bench.store.delete([KEYS.head(rows[2].topic, rows[2].part.topic_id, 0)])
        report = look()
        assert report.verdict is Verdict.FAILURE
        assert told(report) == [
            (Verdict.OK, 0, rows[2].base),
            (Verdict.FAILURE, rows[2].base, rows[2].next_base),
            (Verdict.OK, rows[2].next_base, rows[-1].next_base),
        ]
        assert (rows[2].stem + kind in reasons(report)) is named

    with_copy(tmp_path, work)


@pytest.mark.parametrize("kind", [".log", ".indexes", ".rsm-manifest"])
@pytest.mark.parametrize("fresh", [FRESH, DEEP], ids=["stated", "deep"])
def test_an_object_that_is_shorter(tmp_path: Path, kind: str, fresh: Standing) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        replaced(bench.store, rows[1].stem + kind, lambda raw: raw[:-1])
        report = look(fresh)
        assert (Verdict.FAILURE, rows[1].base, rows[1].next_base) in told(report)

    with_copy(tmp_path, work)


@pytest.mark.parametrize("kind", [".log", ".indexes"])
@pytest.mark.parametrize("fresh", [FRESH, DEEP], ids=["stated", "deep"])
def test_bytes_that_changed_in_place(tmp_path: Path, kind: str, fresh: Standing) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        replaced(bench.store, rows[1].stem + kind, flip)
        report = look(fresh)
        assert {found[0] for found in told(report) if rows[1].base <= found[1] < rows[1].next_base} == {Verdict.FAILURE}
        assert "CRC-32C" in reasons(report)

    with_copy(tmp_path, work)


def test_a_deep_look_needs_no_crc_to_find_a_broken_batch(tmp_path: Path) -> None:
    """Copy tools lose user metadata, and servers state no CRC: every batch has its own."""

    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        for row in rows:
            raw = bench.store.get(row.manifest_key)
            bench.store.put(row.manifest_key, raw, crc32c=crc.crc32c(raw))
        bench.store.delete([KEYS.head(rows[0].topic, rows[0].part.topic_id, 0)])
        assert look().verdict is Verdict.WARNING
        assert "nobody knows the CRC-32C" in reasons(look())
        replaced(bench.store, rows[1].log_key, flip)
        found = told(look())
        assert [one[0] for one in found] == [Verdict.WARNING, Verdict.FAILURE, Verdict.WARNING]

    with_copy(tmp_path, work)


def test_bytes_that_were_damaged_on_the_way_once_are_none(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        once = [rows[1].log_key]
        plain = bench.store.get

        def get(key: str, *args: int, **kwargs: str) -> bytes:
            raw = plain(key, *args, **kwargs)  # type: ignore[arg-type]
            if key in once:
                once.remove(key)
                return flip(raw)
            return raw

        bench.store.get = get  # type: ignore[method-assign,assignment]
        assert look(threads=1).verdict is Verdict.OK
        assert once == []

    with_copy(tmp_path, work)


def test_a_manifest_of_another_segment_and_one_that_says_other_sizes(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        other = bench.store.get(rows[2].manifest_key)
        replaced(bench.store, rows[1].manifest_key, lambda _: other)
        manifest = parse_manifest(bench.store.get(rows[3].manifest_key), "m")
        longer = encode_manifest(replace(manifest, next_base=manifest.next_base + 1))
        replaced(bench.store, rows[3].manifest_key, lambda _: longer)
        report = look()
        assert "is that of another segment" in reasons(report)
        assert "the head says" in reasons(report)
        assert [one[1:] for one in told(report) if one[0] is Verdict.FAILURE] == [
            (rows[1].base, rows[1].next_base),
            (rows[3].base, rows[3].next_base),
        ]

    with_copy(tmp_path, work)


def test_an_accepted_gap_is_green(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        lost = rows[2]
        bench.store.delete([lost.log_key, lost.indexes_key, lost.manifest_key])
        assert look().verdict is Verdict.FAILURE
        stored = read_head(bench.store, KEYS, lost.topic, lost.part.topic_id, 0)
        assert stored is not None
        gap = Gap(start=lost.base, stop=lost.next_base, reason="the disk burnt")
        HEAD.put(bench.store, KEYS.head(lost.topic, lost.part.topic_id, 0), replace(stored.head, gaps=(gap,)))
        report = look()
        assert report.verdict is Verdict.OK
        assert "the disk burnt" in reasons(report)

    with_copy(tmp_path, work)


@pytest.mark.parametrize("which", ["head", "topic", "claim", "archive"])
def test_documents_that_do_not_parse(tmp_path: Path, which: str) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        keys = {
            "head": KEYS.head(rows[0].topic, rows[0].part.topic_id, 0),
            "topic": KEYS.topic_file(rows[0].topic, rows[0].part.topic_id),
            "claim": KEYS.owner(bench.tierer.state.claim.epoch),
            "archive": KEYS.archive,
        }
        bench.store.put(keys[which], b"{", crc32c=crc.crc32c(b"{"))
        report = look()
        assert report.verdict is Verdict.FAILURE
        assert keys[which] in reasons(report) + "".join(report.problems)

    with_copy(tmp_path, work)


def test_a_deleted_topic_is_not_looked_at(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        raw = (
            f'{{"version":1,"topic":"{rows[0].topic}","topic_id":"{rows[0].part.topic_id}","partitions":1,'
            '"config":{},"created_ms":1,"deleted_ms":2,"epoch":0}'
        ).encode()
        bench.store.put(KEYS.topic_file(rows[0].topic, rows[0].part.topic_id), raw, crc32c=crc.crc32c(raw))
        bench.store.delete([rows[1].log_key])
        report = look()
        assert report.verdict is Verdict.OK
        assert report.standing.reports == ()

    with_copy(tmp_path, work)


def test_what_the_owner_deletes_meanwhile_is_no_failure(tmp_path: Path) -> None:
    """Log start moves in the head first; then the objects go."""

    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        head = KEYS.head(rows[0].topic, rows[0].part.topic_id, 0)
        plain = bench.store.list

        def late(operation: str, key: str) -> None:
            if operation == "list" and key.endswith("/0/"):
                bench.store.before = lambda operation, key: None
                stored = read_head(bench.store, KEYS, rows[0].topic, rows[0].part.topic_id, 0)
                assert stored is not None
                HEAD.put(bench.store, head, replace(stored.head, log_start=rows[1].next_base))
                bench.store.delete(
                    [row.stem + kind for row in rows[:2] for kind in (".rsm-manifest", ".log", ".indexes")]
                )

        bench.store.before = late
        report = look()
        assert plain == bench.store.list
        assert told(report) == [(Verdict.OK, rows[1].next_base, rows[-1].next_base)]

    with_copy(tmp_path, work)


def test_objects_on_their_way_are_no_segment(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        stem = rows[-1].stem[:-42] + f"{rows[-1].next_base:020d}" + rows[-1].stem[-22 - 1 :]
        bench.store.put(stem[:-1] + "A.log", b"x", crc32c=crc.crc32c(b"x"))
        assert look().verdict is Verdict.OK

    with_copy(tmp_path, work)


# --- budgets, samples, going on ---------------------------------------------------------------------------------------
def test_a_budget_ends_a_run_and_the_next_ones_finish_it(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        replaced(bench.store, rows[0].log_key, flip)
        offsets = []
        for _ in range(100):
            report = look(budget=Budget(bytes=rows[0].size_bytes * 5 // 2), threads=2)
            assert report.verdict is Verdict.FAILURE, "what an earlier run has found is told, too"
            if report.complete:
                break
            assert report.standing.cursor is not None
            offsets.append(report.standing.cursor.offset)
            assert told(report)[-1][2] == report.standing.cursor.offset
        assert report.complete
        assert offsets == sorted(set(offsets))
        assert 1 < len(offsets) < len(rows)
        (one,) = report.standing.reports
        assert one.looked_into == len(rows)
        assert told(report)[-1] == (Verdict.OK, told(report)[-1][1], rows[-1].next_base)

    with_copy(tmp_path, work)


def test_the_smallest_budget_still_gets_further(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        runs = 0
        while not (report := look(budget=Budget(requests=1))).complete:
            runs += 1
            assert runs <= len(rows)
        assert runs == len(rows) - 1
        assert report.verdict is Verdict.OK

    with_copy(tmp_path, work)


def test_samples_take_turns(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        looked = [look(replace(DEEP, percent=25.0)).standing.reports[0].looked_into for _ in range(4)]
        assert sum(looked) == len(rows)
        assert look.kept is not None
        assert look.kept.turn == 3

    with_copy(tmp_path, work)


def test_a_bucket_that_goes_away_keeps_what_was_found(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        def away(operation: str, key: str) -> None:
            if key == rows[2].log_key:
                raise RemoteUnavailable("S3 503")

        bench.store.before = away
        with pytest.raises(RemoteUnavailable):
            look(threads=1)
        assert look.kept is not None
        assert look.kept.cursor is not None
        assert look.kept.cursor.offset == rows[1].next_base
        bench.store.before = lambda operation, key: None
        report = look()
        assert report.complete
        assert told(report) == [(Verdict.OK, 0, rows[-1].next_base)]

    with_copy(tmp_path, work)


def test_the_standing_survives_a_file(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        bench.store.delete([rows[0].log_key])
        replaced(bench.store, rows[1].log_key, flip)
        look(budget=Budget(requests=20))
        assert look.kept is not None
        file = tmp_path / "verify.json"
        assert load(file) is None
        keep(PosixDisk(), file, look.kept)
        assert load(file) == look.kept
        file.write_bytes(b"{")
        with pytest.raises(CorruptFile):
            load(file)

    with_copy(tmp_path, work)


def test_nothing_is_written_through_a_counted_store(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        before = bench.objects()
        store = CountedStore(bench.store)
        with pytest.raises(RequestRefused):
            store.put("p/x", b"", crc32c=0)
        with pytest.raises(RequestRefused):
            store.begin_upload("p/x")
        with pytest.raises(RequestRefused):
            store.delete([rows[0].log_key])
        with pytest.raises(RequestRefused):
            store.abort_upload("p/x", "1")
        assert bench.objects() == before
        assert list(store.list_uploads("p/")) == []
        assert store.now_ms() == bench.clock.now_ms()
        assert store.cost.requests == 1

    with_copy(tmp_path, work)


def test_another_prefix_is_not_taken_for_a_whole_archive(tmp_path: Path) -> None:
    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        with pytest.raises(NothingThere, match="no archive and no segment"):
            Looked(Bucket(bench.store, Keys("q/"), "memory:q/"))()

    with_copy(tmp_path, work)


# --- others' buckets --------------------------------------------------------------------------------------------------
def _recorded(tmp_path: Path, variant: str) -> Looked:
    shutil.copytree(golden("aiven") / f"bucket-{variant}", tmp_path / "bucket")
    store = FileStore(tmp_path / "bucket", disk=PosixDisk(), clock=SystemClock())
    return Looked(Bucket(store, Keys("tier/"), "file:", recorded_ring()))


@pytest.mark.parametrize("variant", ["plain", "plain-chunks", "txn", "zstd", "enc", "enc-nocomp", "txn-enc"])
def test_a_bucket_that_kafka_wrote_is_whole(tmp_path: Path, variant: str) -> None:
    look = _recorded(tmp_path, variant)
    report = look()
    assert (report.verdict, reasons(report)) == (Verdict.OK, "")
    assert report.archive_id is None
    (one,) = report.standing.reports
    assert isinstance(one, PartitionReport)
    assert one.looked_into == one.segments >= 3
    assert not (tmp_path / "bucket" / ".tierd-meta").exists()


@pytest.mark.parametrize("variant", ["plain", "txn", "zstd", "enc"])
def test_every_flipped_byte_of_its_logs_is_found(tmp_path: Path, variant: str) -> None:
    look = _recorded(tmp_path, variant)
    path = sorted((tmp_path / "bucket").rglob("*.log"))[1]
    raw = path.read_bytes()
    for at in range(61, len(raw), len(raw) // 12):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert look().verdict is Verdict.FAILURE, at
    path.write_bytes(raw)
    assert look().verdict is Verdict.OK


@pytest.mark.s3
def test_on_a_real_server(tmp_path: Path, weed_server: Weed) -> None:
    there = in_weed(weed_server, "verify")

    def work(bench: Bench, look: Looked, rows: list[RemoteSegment]) -> None:
        for info in bench.store.list("p/"):
            whole, raw = bench.store.get_with_info(info.key)
            key = there.bucket.keys.prefix + info.key.removeprefix("p/")
            there.bucket.store.put(key, raw, crc32c=crc.crc32c(raw), metadata=whole.metadata)
        for fresh in (FRESH, DEEP):
            report = Looked(there.bucket)(fresh)
            assert (report.verdict, told(report)) == (Verdict.OK, [(Verdict.OK, 0, rows[-1].next_base)])
        key = there.bucket.keys.prefix + rows[1].log_key.removeprefix("p/")
        replaced(there.bucket.store, key, flip)
        assert Looked(there.bucket)(FRESH).verdict is Verdict.FAILURE, "the server states another CRC-32C"
        there.bucket.store.delete([key])
        assert told(Looked(there.bucket)())[1] == (Verdict.FAILURE, rows[1].base, rows[1].next_base)

    with_copy(tmp_path, work)
    there.bucket.store.close()
