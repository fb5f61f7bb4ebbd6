"""What an attempt takes of its slot beside its program: starting it, committing what it made, telling of both.

May know: the model's statistics and topology. One rule: the disk's time for what was made is not in it, since whoever plans with it adds
that time by the bytes.

Each output is hashed, synced and told of, so a thousand of them take longer than one, however small they are. Attempts with few outputs
show what any attempt takes, those with many what each output adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stager.model.robust import median
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, DEFAULT_OVERHEAD_S

# Fewer attempts say less than the default does.
SAMPLES_MIN = 5
# So many outputs take longer than the rest of their attempt, or cost next to nothing.
MANY_FILES = 32
# A program that is started, reads and writes a little and ends takes no longer, on a busy machine either.
AS_DECLARED_S = 0.1
# So many times what is usual tells of a busy machine.
ODD_FACTOR = 3.0


@dataclass(frozen=True, slots=True)
class Overhead:
    """Of one attempt, and of each of its outputs. `measured`: here; else it is the default, which is nothing for an output."""

    seconds: float = DEFAULT_OVERHEAD_S
    measured: bool = False
    file_s: float = 0.0
    file_measured: bool = False


@dataclass(frozen=True, slots=True)
class SeenOverhead:
    """Of one attempt that made so many files."""

    seconds: float
    files: int = 0


def seen_overhead_s(begun_at: float, ended_at: float, program_s: float, made_bytes: int) -> float:
    """Of one attempt, from its command to the word of its end, whose program took so long and made so many bytes."""
    return max(0.0, ended_at - begun_at - program_s - made_bytes / DEFAULT_DISK_BYTES_PER_S)


def program_s(wall_s: float, declared_s: float | None, input_bytes: int) -> float:
    """What a plan has for the program of an attempt that took `wall_s`. Where the time of that very job is declared, plans take it and
    add the reading of its inputs. A program that did about that has taken what it was declared to, and the rest is what any program
    takes to start and to end. One that did not was declared wrongly, which is no overhead.
    """
    if declared_s is None:
        return wall_s
    planned_s = declared_s + input_bytes / DEFAULT_DISK_BYTES_PER_S
    return planned_s if abs(wall_s - planned_s) <= AS_DECLARED_S else wall_s


def usual_mean(values: Sequence[float]) -> float:
    """With what is more than ODD_FACTOR times what the middle one is cut down to that."""
    most = ODD_FACTOR * median(values, [1.0] * len(values))
    return sum(min(value, most) for value in values) / len(values)


def overhead_of(seen: Sequence[SeenOverhead]) -> Overhead:
    """What attempts take adds up in their slots, so it is their mean. An odd one, which waited for a busy machine, counts as no more than
    a few usual ones.
    """
    few = [each.seconds for each in seen if each.files < MANY_FILES]
    known = Overhead(usual_mean(few), measured=True) if len(few) >= SAMPLES_MIN else Overhead()
    many = [each for each in seen if each.files >= MANY_FILES]
    if not many:
        return known
    file_s = median([max(0.0, each.seconds - known.seconds) / each.files for each in many], [float(each.files) for each in many])
    return Overhead(known.seconds, known.measured, file_s, file_measured=True)
