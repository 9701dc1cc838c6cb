"""Budgets, samples, and runs that go on where the last one ended."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.tierer_bench import Bench
from kit.verifying import DEEP, Looked, flip, replaced, told, with_copy
from tierd.base.errors import CorruptFile, RemoteUnavailable
from tierd.remote.errors import RequestRefused
from tierd.remote.keys import Keys
from tierd.remote.open import Bucket
from tierd.storage.disk import PosixDisk
from tierd.tiering.segments import RemoteSegment
from tierd.tiering.verify.run import NothingThere
from tierd.tiering.verify.spending import Budget, CountedStore
from tierd.tiering.verify.standing import keep, load
from tierd.tiering.verify.verdicts import Verdict


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
