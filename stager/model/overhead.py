"""The overhead of an attempt in its slot beside its program: starting it, committing its outputs, telling of both.

May know: the model's statistics and topology. One rule: the disk's time for what was made is not in it, since whoever plans with it adds
that time by the bytes.

How fast that is shows too: what attempts take beyond their programs grows by the bytes that pass there. Attempts side by side pass
theirs at the same time, so those of all of them count: what each one gets is not what the disk, or the page cache of many cores, gives.

Each output is hashed, synced and told of, so a thousand of them take longer than one, however small they are. Attempts with few outputs
show what any attempt takes, those with many what each output adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stager.model.robust import line_through, median
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, DEFAULT_OVERHEAD_S

# Fewer attempts say less than the default does.
SAMPLES_MIN = 5
# So many outputs take longer than the rest of their attempt, or cost next to nothing.
MANY_FILES = 32
# A program that is started, reads and writes a little and ends takes no longer, on a busy machine either.
AS_DECLARED_S = 0.1
# So many times what is usual tells of a busy machine.
ODD_FACTOR = 3.0
# Attempts tell of the disk where that many differ by so many seconds at the rate that is assumed, and no disk is believed to be slower
# or faster than this.
DISK_POINTS_MIN, DISK_MATTERS_S = 12, 0.02
DISK_BYTES_PER_S = 20e6, 5e9
# A line through all pairs of points takes time by the square of their number.
DISK_POINTS_MAX = 100
# So many attempts say what share of their time attempts usually take beyond their programs.
SHARE_ATTEMPTS = 20


@dataclass(frozen=True, slots=True)
class Overhead:
    """Of one attempt, and of each of its outputs. `measured`: here; else it is the default, which is nothing for an output.
    `disk_bytes_per_s`: what jobs together get of the node's disk, page cache included; None: nobody saw it.
    """

    seconds: float = DEFAULT_OVERHEAD_S
    measured: bool = False
    file_s: float = 0.0
    file_measured: bool = False
    disk_bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True)
class SeenOverhead:
    """Of one attempt that made so many files. `beyond_s`: what it took beyond its program, in which `passed_bytes` passed the disk, those
    of attempts beside it included; None: it was not kept.
    """

    seconds: float
    files: int = 0
    passed_bytes: int = 0
    beyond_s: float | None = None

    def beside(self, passing: float) -> SeenOverhead:
        """With so many others that passed bytes all the while, as many in the same time as this one."""
        return replace(self, passed_bytes=round(self.passed_bytes * (1 + passing)))


def share_after(share: float | None, took_s: float, beyond_s: float) -> float:
    """The share of its time that an attempt usually takes beyond its program, after one more. Whoever reckons what passed beside an attempt
    takes this and not that attempt's own share: then one that had to wait would have passed more by that, and the disk would be slow for
    nothing.
    """
    own = min(1.0, max(0.0, beyond_s) / took_s) if took_s > 0 else 0.0
    return own if share is None else share + (own - share) / SHARE_ATTEMPTS


def seen_overhead(took_s: float, wall_s: float, declared_s: float | None, input_bytes: int, made_bytes: int, files: int) -> SeenOverhead:
    """Of one attempt that took so long from its command to the word of its end, and its program `wall_s` of that. Nothing passed beside
    it.
    """
    program = program_s(wall_s, declared_s, input_bytes)
    seconds = max(0.0, took_s - program - made_bytes / DEFAULT_DISK_BYTES_PER_S)
    own_bytes, beyond_s = made_bytes, took_s - wall_s
    if declared_s is not None and did_as_declared(wall_s, declared_s, input_bytes):
        own_bytes, beyond_s = input_bytes + made_bytes, took_s - declared_s
    return SeenOverhead(seconds, files, own_bytes, beyond_s)


def program_s(wall_s: float, declared_s: float | None, input_bytes: int) -> float:
    """The time that a plan has for the program of an attempt that took `wall_s`. Where the time of that very job is declared, plans take it
    and add the reading of its inputs. A program that did about that has taken what it was declared to, and the rest is what any program
    takes to start and to end. One that did not was declared wrongly, which is no overhead.
    """
    if declared_s is None or not did_as_declared(wall_s, declared_s, input_bytes):
        return wall_s
    return declared_s + input_bytes / DEFAULT_DISK_BYTES_PER_S


def did_as_declared(wall_s: float, declared_s: float, input_bytes: int) -> bool:
    """It read its inputs as fast as is assumed, or faster."""
    return declared_s - AS_DECLARED_S <= wall_s <= declared_s + input_bytes / DEFAULT_DISK_BYTES_PER_S + AS_DECLARED_S


def disk_rate(seen: Sequence[SeenOverhead]) -> float | None:
    """By how the time beyond the programs grows with the bytes: the slope of a line that a few odd attempts do not move. Where all pass
    about the same, there is none. Then they show how fast the disk is at least. It is never slower than that, whatever the line says:
    where most pass about the same, its slope is that of the few that do not.
    """
    points = [(float(each.passed_bytes), each.beyond_s) for each in seen if each.beyond_s is not None and each.files < MANY_FILES]
    points = points[:: -(-len(points) // DISK_POINTS_MAX) or 1]
    if len(points) < DISK_POINTS_MIN:
        return None
    matters = DISK_MATTERS_S * DEFAULT_DISK_BYTES_PER_S
    middle = median([size for size, _ in points], [1.0] * len(points))
    least, most = DISK_BYTES_PER_S
    at_least = rate_at_least([point for point in points if point[0] >= matters])
    if sum(abs(size - middle) >= matters for size, _ in points) < DISK_POINTS_MIN:
        return min(at_least, most) if at_least > DEFAULT_DISK_BYTES_PER_S else None
    line = line_through([size for size, _ in points], [seconds for _, seconds in points], [1.0] * len(points))
    return min(max(1 / line.slope, at_least, least), most) if line is not None else most


def rate_at_least(points: Sequence[tuple[float, float]]) -> float:
    """As if attempts took nothing beside their bytes. 0: too few say so."""
    if len(points) < DISK_POINTS_MIN:
        return 0.0
    return median([size / max(beyond_s, 1e-9) for size, beyond_s in points], [1.0] * len(points))


def beside_s(each: SeenOverhead, disk_bytes_per_s: float | None) -> float:
    """Seconds beside its program, without those of the disk."""
    if disk_bytes_per_s is None or each.beyond_s is None:
        return each.seconds
    return max(0.0, each.beyond_s - each.passed_bytes / disk_bytes_per_s)


def usual_mean(values: Sequence[float]) -> float:
    """With what is more than ODD_FACTOR times what the middle one is cut down to that."""
    most = ODD_FACTOR * median(values, [1.0] * len(values))
    return sum(min(value, most) for value in values) / len(values)


def overhead_of(seen: Sequence[SeenOverhead], line_bytes_per_s: float = 0.0) -> Overhead:
    """The mean of the overheads, since they add up in their slots. An odd one, which waited for a busy machine, counts as no more than a
    few usual ones. `line_bytes_per_s`: what came over the node's line, all of which its disk took; it counts where attempts do not show
    how fast that is.
    """
    disk = disk_rate(seen)
    if disk is None and line_bytes_per_s > DEFAULT_DISK_BYTES_PER_S:
        disk = min(line_bytes_per_s, DISK_BYTES_PER_S[1])
    few = [beside_s(each, disk) for each in seen if each.files < MANY_FILES]
    known = Overhead(usual_mean(few), True, disk_bytes_per_s=disk) if len(few) >= SAMPLES_MIN else Overhead()
    many = [each for each in seen if each.files >= MANY_FILES]
    if not many:
        return known
    file_s = median([max(0.0, each.seconds - known.seconds) / each.files for each in many], [float(each.files) for each in many])
    return Overhead(known.seconds, known.measured, file_s, True, known.disk_bytes_per_s)
