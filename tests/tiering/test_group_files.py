"""Group files in the bucket: numbered, thinned out, and the newest whole one is found."""

from kit.clock import FakeClock
from tierd.remote import crc
from tierd.remote.groups import GroupOffset, GroupOffsets, encode_groups
from tierd.remote.keys import Keys
from tierd.remote.memory import MemoryStore
from tierd.remote.open import Bucket
from tierd.tiering.group_files import GroupFiles, Written, list_groups, newest_groups, superfluous

HOUR_MS, MINUTE_MS = 3_600_000, 60_000


def file(offset: int) -> bytes:
    return encode_groups(1, [GroupOffsets("g", (GroupOffset("t", None, 0, offset, None, "", 1),))])


def test_the_newest_ten_and_one_of_each_of_two_days_hours_stay() -> None:
    now_ms = 100 * HOUR_MS
    files = [Written(1, number, number * MINUTE_MS) for number in range(100 * 60)]
    kept = set(files) - set(superfluous(files, now_ms))
    assert {one for one in files if one.sequence >= 100 * 60 - 10} <= kept
    hourly = sorted(one.sequence for one in kept if one.sequence < 100 * 60 - 10)
    assert hourly == [hour * 60 + 59 for hour in range(52, 99)]
    assert superfluous(files[:10], now_ms) == []


def test_a_run_goes_on_numbering_and_deletes_now_and_then() -> None:
    clock = FakeClock()
    store = MemoryStore(clock)
    bucket = Bucket(store, Keys("p/"), "memory:")
    assert newest_groups(bucket) is None
    for number in range(45):
        if number in (0, 20):
            files = GroupFiles(bucket, clock.now_ms)  # 20: another process of the same run
        files.keep(file(number), 3)
        clock.advance(1_000)
    there = list_groups(bucket)
    assert there[-1].sequence == 44
    assert len(there) < 35
    assert newest_groups(bucket) == file(44)
    GroupFiles(bucket, clock.now_ms).keep(file(100), 4)
    assert list_groups(bucket)[-1] == Written(4, 0, there[-1].written_ms + 1_000)
    assert newest_groups(bucket) == file(100)


def test_one_that_is_broken_gives_way_to_an_older_one() -> None:
    clock = FakeClock()
    bucket = Bucket(MemoryStore(clock), Keys("p/"), "memory:")
    files = GroupFiles(bucket, clock.now_ms)
    files.keep(file(1), 1)
    files.keep(file(2), 1)
    broken = file(2)[:-9]
    bucket.store.put(bucket.keys.groups(1, 1), broken, crc32c=crc.crc32c(broken))
    assert newest_groups(bucket) == file(1)
