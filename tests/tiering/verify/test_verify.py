"""A look at a whole bucket that tierd wrote, damaged in all ways."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import KEYS, Bench
from kit.verifying import DEEP, FRESH, Looked, flip, reasons, replaced, told, with_copy
from tierd.remote import crc
from tierd.remote.heads import HEAD, Gap, read_head
from tierd.remote.manifest import encode_manifest, parse_manifest
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.standing import Standing
from tierd.tiering.verify.verdicts import Verdict


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
