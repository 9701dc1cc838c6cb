"""Any file of a data directory as lines for people and programs: what `tierd dump` prints.

Damage never ends a dump: what can be read is shown, then a `problem` line says where and why it ends.
"""

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tierd.base.errors import CorruptFile
from tierd.storage import names
from tierd.storage.batch import BatchHeader, ControlType, parse_control
from tierd.storage.checkpoints import parse_checkpoint
from tierd.storage.compression import Codec
from tierd.storage.epochs import parse_epochs
from tierd.storage.header import HEADER_BYTES, parse_header
from tierd.storage.index import OffsetIndex, parse_index
from tierd.storage.metadata import parse_clean_shutdown, parse_meta_properties, parse_partition_metadata
from tierd.storage.records import Record, iter_records
from tierd.storage.scan import scan_segment
from tierd.storage.snapshot import parse_snapshot
from tierd.storage.timeindex import TimeIndex, parse_time_index
from tierd.storage.txnindex import parse_txn_index

Fact = str | int | bool | None | dict[str, str] | list[list["Fact"]]


@dataclass(frozen=True, slots=True)
class Line:
    """One entry of one file. `problem` as its kind says that the file is damaged."""

    kind: str
    facts: dict[str, Fact]

    @property
    def is_problem(self) -> bool:
        return self.kind == PROBLEM


PROBLEM = "problem"
_CHECKPOINTS = (
    names.RECOVERY_POINT_CHECKPOINT,
    names.REPLICATION_CHECKPOINT,
    names.LOG_START_CHECKPOINT,
    names.CLEANER_CHECKPOINT,
)


def dump_file(path: Path, *, records: bool = False) -> Iterator[Line]:
    """The lines of one file, lazily; *records* also shows what the batches of a `.log` hold.

    A file that is none of Kafka's gives one `unknown` line. Raises OSError.
    """
    suffix, base = _segment_part(path.name)
    if suffix is names.Suffix.LOG:
        yield from _guarded(_log(path, base, records))
        return
    read = _WITH_BASE.get(suffix) if suffix else None
    if read is not None:
        yield from _guarded(read(path.read_bytes(), base or 0, path.name))
        return
    parse = _BY_SUFFIX.get(suffix) if suffix else _BY_NAME.get(path.name)
    if parse is None:
        yield Line("unknown", {"bytes": path.stat().st_size})
    else:
        yield from _guarded(parse(path.read_bytes(), path.name))


def files_under(path: Path) -> Iterator[Path]:
    """*path* itself, or every file below it by name; links are not followed."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, found in os.walk(path):
        folders.sort()
        yield from (Path(folder, name) for name in sorted(found))


def as_text(line: Line) -> str:
    """`kind key=value ...`; None and False are left out."""
    shown = (f"{key}={_word(value)}" for key, value in line.facts.items() if value is not None and value is not False)
    return " ".join((line.kind, *shown))


def as_json(path: Path, line: Line) -> str:
    return json.dumps({"file": str(path), "kind": line.kind, **line.facts})


def _word(value: Fact) -> str:
    if isinstance(value, str):
        if re.fullmatch(r"[\w.:/+-]+", value):
            return value
        return json.dumps(value, ensure_ascii=not value.isprintable())  # nothing that a terminal would obey
    return json.dumps(value)


def _segment_part(name: str) -> tuple[names.Suffix | None, int | None]:
    """Also for a copy under another name: its suffix tells what it is, only the base stays unknown."""
    parsed = names.parse_segment_file(name)
    if parsed is not None:
        return parsed.suffix, parsed.offset
    suffix = Path(name).suffix
    return (names.Suffix(suffix), None) if suffix in set(names.Suffix) else (None, None)


def _guarded(lines: Iterable[Line]) -> Iterator[Line]:
    try:
        yield from lines
    except CorruptFile as error:
        yield Line(PROBLEM, {"position": error.position, "reason": error.reason})


def _log(path: Path, base: int | None, records: bool) -> Iterator[Line]:
    size_bytes = path.stat().st_size
    with path.open("rb", buffering=0) as file:
        fd = file.fileno()
        if base is None:
            base = parse_header(os.pread(fd, HEADER_BYTES, 0), 0, path.name).base_offset if size_bytes else 0
        scan = scan_segment(fd, size_bytes, base, path.name)
        for position, header in scan:
            yield _batch(position, header)
            if records:
                batch = os.pread(fd, header.size_bytes, position)
                yield from _guarded(_record(record, header) for record in iter_records(batch, header, path.name))
        if scan.problem is not None and _is_room(fd, scan.good_bytes, size_bytes):
            yield Line("room", {"position": scan.good_bytes, "bytes": size_bytes - scan.good_bytes})
        else:
            scan.require_whole()


def _is_room(fd: int, position: int, stop: int) -> bool:
    """Whether only zeros follow: a preallocated log, not a damaged one."""
    while position < stop:
        piece = os.pread(fd, min(1024 * 1024, stop - position), position)
        if not piece or any(piece):
            return False
        position += len(piece)
    return True


def _batch(position: int, header: BatchHeader) -> Line:
    return Line(
        "batch",
        {
            "position": position,
            "size_bytes": header.size_bytes,
            "base_offset": header.base_offset,
            "last_offset": header.last_offset,
            "count": header.count,
            "codec": Codec(header.codec).name.lower() if header.codec in set(Codec) else header.codec,
            "base_timestamp_ms": header.base_timestamp_ms,
            "max_timestamp_ms": header.max_timestamp_ms,
            "log_append_time": header.log_append_time,
            "leader_epoch": header.leader_epoch,
            "producer_id": _some(header.producer_id),
            "producer_epoch": _some(header.producer_epoch),
            "base_sequence": _some(header.base_sequence),
            "transactional": header.transactional,
            "control": header.control,
            "delete_horizon": header.delete_horizon,
            "crc": header.crc,
        },
    )


def _record(record: Record, header: BatchHeader) -> Line:
    facts: dict[str, Fact] = {"offset": record.offset, "timestamp_ms": record.timestamp_ms}
    if header.control:
        kind, epoch = parse_control(record)
        facts["control"] = ControlType(kind).name.lower() if kind in set(ControlType) else kind
        facts["coordinator_epoch"] = epoch
    else:
        facts["key"] = _readable(record.key)
        facts["value"] = _readable(record.value)
        if record.headers:
            facts["headers"] = [
                [_readable(name.encode("utf-8", "surrogateescape")), _readable(value)] for name, value in record.headers
            ]
    return Line("record", facts)


def _readable(field: bytes | None) -> Fact:
    """Text as text, everything else as base64."""
    if field is None:
        return None
    try:
        return field.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(field).decode()}


def _some(number: int) -> int | None:
    return None if number == -1 else number


def _index(raw: bytes, base: int, where: str) -> Iterator[Line]:
    for entry in OffsetIndex(raw, base).good():
        yield Line("index", {"offset": entry.offset, "position": entry.position})
    parse_index(raw, base, where)


def _time_index(raw: bytes, base: int, where: str) -> Iterator[Line]:
    for entry in TimeIndex(raw, base).good():
        yield Line("timeindex", {"timestamp_ms": entry.timestamp_ms, "offset": entry.offset})
    parse_time_index(raw, base, where)


def _snapshot(raw: bytes, where: str) -> Iterator[Line]:
    for entry in parse_snapshot(raw, where):
        yield Line("producer", asdict(entry))


def _txn_index(raw: bytes, where: str) -> Iterator[Line]:
    for entry in parse_txn_index(raw, where):
        yield Line("aborted", asdict(entry))


def _epochs(raw: bytes, where: str) -> Iterator[Line]:
    for entry in parse_epochs(raw, where):
        yield Line("epoch", {"epoch": entry.epoch, "start_offset": entry.start_offset})


def _checkpoint(raw: bytes, where: str) -> Iterator[Line]:
    for tp, offset in parse_checkpoint(raw, where).items():
        yield Line("checkpoint", {"topic": tp.topic, "partition": tp.partition, "offset": offset})


def _partition_metadata(raw: bytes, where: str) -> Iterator[Line]:
    yield Line("partition", {"topic_id": str(parse_partition_metadata(raw, where))})


def _meta_properties(raw: bytes, where: str) -> Iterator[Line]:
    meta = parse_meta_properties(raw, where)
    directory_id = None if meta.directory_id is None else str(meta.directory_id)
    yield Line("meta", {"node_id": meta.node_id, "cluster_id": meta.cluster_id, "directory_id": directory_id})


def _clean_shutdown(raw: bytes, where: str) -> Iterator[Line]:
    yield Line("clean_shutdown", {"broker_epoch": parse_clean_shutdown(raw, where)})


_WITH_BASE: dict[names.Suffix, Callable[[bytes, int, str], Iterator[Line]]] = {
    names.Suffix.INDEX: _index,
    names.Suffix.TIME_INDEX: _time_index,
}
_BY_SUFFIX: dict[names.Suffix, Callable[[bytes, str], Iterator[Line]]] = {
    names.Suffix.SNAPSHOT: _snapshot,
    names.Suffix.TXN_INDEX: _txn_index,
}
_BY_NAME: dict[str, Callable[[bytes, str], Iterator[Line]]] = {
    names.LEADER_EPOCH_CHECKPOINT: _epochs,
    names.PARTITION_METADATA: _partition_metadata,
    names.META_PROPERTIES: _meta_properties,
    names.CLEAN_SHUTDOWN: _clean_shutdown,
    **dict.fromkeys(_CHECKPOINTS, _checkpoint),
}
