"""The small files that say whose a directory is (storage/FORMAT.md, "Metadata files").

`partition.metadata` ties a partition directory to a topic id, `meta.properties` a data directory to a node and
a cluster, `.kafka_cleanshutdown` says that nothing needs recovery.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from tierd.base.errors import CorruptFile
from tierd.base.ids import Uuid

_PARTITION = re.compile(rb"version: 0\ntopic_id: ([A-Za-z0-9_-]{22})\n?")
_META_VERSION = "1"
_PAIR = re.compile(r"((?:\\.|[^\\=:\s])+)[ \t]*[=:][ \t]*(.*)")
_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The owner of a data directory; a part that an older Kafka did not write is None."""

    node_id: int | None
    cluster_id: str | None
    directory_id: Uuid | None


def parse_partition_metadata(raw: bytes, where: str = "") -> Uuid:
    """The topic id. Raises CorruptFile."""
    found = _PARTITION.fullmatch(raw)
    if not found:
        raise CorruptFile(where, 0, "it needs the lines 'version: 0' and 'topic_id: <22 characters>'")
    return Uuid.parse(found[1].decode())


def encode_partition_metadata(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


def parse_meta_properties(raw: bytes, where: str = "") -> MetaProperties:
    """Raises CorruptFile for another version or values of the wrong form."""
    values = parse_properties(raw, where)
    version = values.get("version")
    if version != _META_VERSION:
        raise CorruptFile(where, 0, f"version {version!r}, only {_META_VERSION} is known")
    node, directory = values.get("node.id"), values.get("directory.id")
    if node is not None and not re.fullmatch(r"\d{1,10}", node, re.ASCII):
        raise CorruptFile(where, 0, f"node.id {node!r} is not a number")
    try:
        directory_id = None if directory is None else Uuid.parse(directory)
    except ValueError as error:
        raise CorruptFile(where, 0, f"directory.id: {error}") from error
    return MetaProperties(
        node_id=None if node is None else int(node), cluster_id=values.get("cluster.id"), directory_id=directory_id
    )


def encode_meta_properties(meta: MetaProperties, written: str) -> bytes:
    """*written* is the date line, which Kafka puts there for people."""
    values = {
        "node.id": None if meta.node_id is None else str(meta.node_id),
        "directory.id": None if meta.directory_id is None else str(meta.directory_id),
        "version": _META_VERSION,
        "cluster.id": meta.cluster_id,
    }
    return encode_properties({key: value for key, value in values.items() if value is not None}, ["", written])


def parse_clean_shutdown(raw: bytes, where: str = "") -> int | None:
    """The broker epoch of the node that stopped cleanly; None when it is not told (Kafka before 3.8: an empty file)."""
    if not raw.strip():
        return None
    try:
        value = json.loads(raw)
        return int(value["brokerEpoch"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptFile(where, 0, f"no JSON with a brokerEpoch: {error}") from error


def encode_clean_shutdown(broker_epoch: int) -> bytes:
    return f'{{"version":0,"brokerEpoch":{broker_epoch}}}'.encode()


def parse_properties(raw: bytes, where: str = "") -> dict[str, str]:
    """Java properties as far as Kafka writes them: one `key=value` a line, `#` comments, backslash escapes."""
    try:
        lines = raw.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise CorruptFile(where, error.start, "not a properties file") from error
    found: dict[str, str] = {}
    for line in lines:
        text = line.rstrip("\r").lstrip()
        if not text or text[0] in "#!":
            continue
        pair = _PAIR.fullmatch(text)
        if not pair:
            raise CorruptFile(where, 0, f"no key and value in {text!r}")
        found[_unescape(pair[1])] = _unescape(pair[2])
    return found


def encode_properties(values: Mapping[str, str], comments: list[str]) -> bytes:
    lines = [f"#{comment}" for comment in comments]
    lines += [f"{_escape(key)}={_escape(value)}" for key, value in values.items()]
    return "".join(f"{line}\n" for line in lines).encode("ascii")


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        return chr(int(found[1][1:], 16)) if len(found[1]) == 5 else _ESCAPES.get(found[1], found[1])

    utf16 = re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, text)
    return utf16.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _escape(text: str) -> str:
    out = re.sub(r"[\\=:#! ]", lambda found: "\\" + found[0], text)
    return "".join(char if " " <= char <= "~" else _java_units(char) for char in out)


def _java_units(char: str) -> str:
    """Java's properties escape UTF-16 units, not characters."""
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))
