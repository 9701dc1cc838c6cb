"""What a kill may interrupt: the deeds of a running tierd, and the durable steps that each is made of."""

import random
from dataclasses import dataclass

from kit.mined import BROKER, TIERER, Mine

LONG, SHORT = "chaos", "short"
"""A topic that keeps everything, and one whose retention is always busy."""


@dataclass(frozen=True, slots=True)
class Step:
    """A place for a mine: somewhere among the first *most* steps of *role* that match *pattern*."""

    role: str
    pattern: str
    most: int = 1


_SEGMENT = rf"/data/{LONG}-0/\d{{20}}\."
_CHANGES = r"^bucket\.(put|begin_upload|put_part|complete)"
_FOLDER = r"/bucket/(\.tierd-meta/(tmp|uploads|objects/chaos)|chaos)"

DEEDS: dict[str, tuple[Step, ...]] = {
    "produce": (Step(BROKER, rf"^pwrite .*{_SEGMENT}log$", 60),),
    "roll": (
        Step(BROKER, rf"^(open|write_new|truncate|replace|set_mtime) .*{_SEGMENT}(log|index|timeindex|snapshot)$", 9),
        Step(BROKER, rf"^fsync_(file|dir) .*/data/{LONG}-0", 5),
    ),
    "copy": (
        Step(TIERER, r"^catalog\.(started|finished)$", 3),
        Step(TIERER, rf"{_CHANGES} \S*{LONG}-\S*\.(log|indexes|rsm-manifest)$", 4),
        Step(TIERER, rf"{_CHANGES} \S*tierd/partitions/{LONG}-"),
        Step(TIERER, rf"^(write_new|open|pwrite|truncate|fsync|fsync_file|replace) .*{_FOLDER}", 20),
    ),
    "evict": (
        Step(BROKER, r"^(write_new|replace) .*/log-start-offset-checkpoint", 2),
        Step(BROKER, rf"^replace .*/data/{LONG}-0/.*\.deleted$", 8),
        Step(BROKER, rf"^unlink .*/data/{LONG}-0/.*\.deleted$", 4),
    ),
    "retain": (
        Step(BROKER, r"^(write_new|replace) .*/log-start-offset-checkpoint", 2),
        Step(BROKER, rf"^replace .*/data/{SHORT}-0/.*\.deleted$", 5),
        Step(TIERER, r"^catalog\.(set_log_start|release|deleting|deleted)$", 4),
        Step(TIERER, rf"^bucket\.delete \S*{SHORT}-", 3),
        Step(TIERER, rf"^unlink .*/bucket/{SHORT}-.*\.(rsm-manifest|log|indexes)$", 3),
    ),
    "create": (
        Step(BROKER, r"^registry\.add$"),
        Step(BROKER, r"/data/gone-\d+-0", 9),
    ),
    "delete": (
        Step(BROKER, r"^registry\.(mark_deleted|forget)$", 2),
        Step(BROKER, r"^replace .*-delete$"),
        Step(BROKER, r"^(unlink|rmdir) .*-delete(/|$)", 9),
        Step(TIERER, r"^catalog\.(set_topic|topic_written|release|deleting|deleted|drop_partition)$", 6),
        Step(TIERER, rf"{_CHANGES} \S*tierd/topics/gone-"),
        Step(TIERER, r"^bucket\.delete \S*gone-", 3),
        Step(TIERER, r"^bucket\.delete \S*tierd/partitions/gone-"),
        Step(TIERER, r"^unlink .*/bucket/gone-.*\.(rsm-manifest|log|indexes)$", 6),
    ),
    "commit": (Step(BROKER, r"^pwrite .*/data/__consumer_offsets-\d+/\d{20}\.log$", 10),),
    "start": (Step(BROKER, ".", 80), Step(TIERER, ".", 25)),
    "tierer again": (Step(TIERER, ".", 25),),
}


def choose(deed: str, dice: random.Random, *, in_folder: bool) -> Mine:
    """A mine somewhere in *deed*; a start, of both or of the tierer alone, is only interrupted by killing who starts.

    *in_folder*: the bucket is a directory, whose own steps count, too.
    """
    step = dice.choice([step for step in DEEDS[deed] if in_folder or "/bucket/" not in step.pattern])
    victims = dice.choice([(BROKER,), (TIERER,), (BROKER, TIERER)])
    if deed == "start":
        victims = dice.choice([(BROKER,), (BROKER, TIERER)])
    if deed == "tierer again":
        victims = dice.choice([(TIERER,), (BROKER, TIERER)])
    return Mine(
        role=step.role, step=step.pattern, nth=dice.randint(1, step.most), after=dice.random() < 0.5, victims=victims
    )
