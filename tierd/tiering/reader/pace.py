"""How far to read ahead of a reader, and in ranges of which size: what it has done so far decides. Pure.

Whoever has read little in one go gets little, for it may stop; whoever takes its time gets what it reads in a few
seconds; the others get much, in few and large requests. A reader's pace is measured while it does not wait for us: a
slow bucket must not pass for a slow reader, who would then be read ahead of less.
"""

from dataclasses import dataclass

GROWTH = 4
"""Ahead of a reader lies at most so many times what it has read in one go: so much is for nothing when it stops."""
AHEAD_MS = 4_000
"""... and at most what it reads in this time: longer than a bucket usually takes for a range."""
RANGES_AHEAD = 3
"""A window is asked for in at least so many ranges: one is used while others come."""
SMALLEST = 4
"""The smallest range of a sequential reader is this part of the largest: the 4 of 16 MiB."""
FADE_MS = 8_000
FADE_BYTES = 64 * 1024 * 1024
"""What lies further back than either counts for half."""


@dataclass(frozen=True, slots=True)
class Habit:
    """A reader so far."""

    run_bytes: int = 0
    """Read in one go, each time on from where it was."""
    taken_bytes: int = 0
    thought_ms: int = 0
    """How long it was away with them until it came again; both fade."""

    def came_again(self, thought_ms: int) -> "Habit":
        """It asks for more, *thought_ms* after the last answer."""
        taken_bytes, all_ms = self.taken_bytes, self.thought_ms + thought_ms
        if taken_bytes > FADE_BYTES or all_ms > FADE_MS:
            return Habit(self.run_bytes, taken_bytes // 2, all_ms // 2)
        return Habit(self.run_bytes, taken_bytes, all_ms)

    def took(self, size_bytes: int) -> "Habit":
        """It was answered with *size_bytes*."""
        return Habit(self.run_bytes + size_bytes, self.taken_bytes + size_bytes, self.thought_ms)


@dataclass(frozen=True, slots=True)
class Pace:
    """What is done for a sequential reader."""

    window_bytes: int
    """What is to be there, or under way, beyond where it is."""
    range_bytes: int
    """Asked for at a time, give or take a third."""

    @property
    def step_bytes(self) -> int:
        """When it has moved on so far, looking ahead again is worth its while."""
        return min(self.window_bytes, self.range_bytes) // SMALLEST


def pace(habit: Habit, share_bytes: int, largest_bytes: int) -> Pace:
    """*share_bytes*: the most that may lie ahead of this reader; *largest_bytes*: the largest range."""
    useful_bytes = min(GROWTH * habit.run_bytes, habit.taken_bytes * AHEAD_MS // max(1, habit.thought_ms))
    fitting_bytes = min(useful_bytes, share_bytes) // RANGES_AHEAD
    range_bytes = min(max(fitting_bytes, smallest_range(largest_bytes)), largest_bytes)
    # The last range of a window reaches beyond it.
    return Pace(min(useful_bytes, max(share_bytes - range_bytes, 0)), range_bytes)


def smallest_range(largest_bytes: int) -> int:
    """Of a reader that goes on; also what it waits for when nothing is there."""
    return max(1, largest_bytes // SMALLEST)
