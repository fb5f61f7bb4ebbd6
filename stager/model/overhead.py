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
# A line through all pairs of points takes time by the square of their number. Those with the most bytes tell most, and there may be few.
DISK_POINTS_MAX, DISK_POINTS_LARGEST = 100, 10
# To find the rate of the disk, which says how long attempts were at it: so often, or until it changes by less than this.
ROUNDS, ALIKE = 8, 0.01
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
    """Of one attempt that made so many files. `beyond_s`: what it took beyond its program, in which `own_bytes` of its own passed the disk,
    and `passed_bytes` with those of attempts beside it, if these passed theirs all the while that they were beyond their programs. None: it
    was not kept.
    """

    seconds: float
    files: int = 0
    passed_bytes: int = 0
    beyond_s: float | None = None
    own_bytes: int | None = None

    def beside(self, passing: float) -> SeenOverhead:
        """With so many others that passed bytes all the while, as many in the same time as this one."""
        return replace(self, passed_bytes=round(self.passed_bytes * (1 + passing)))

    def passed_at(self, disk_bytes_per_s: float | None) -> float:
        """The bytes that passed while its own did, at a disk that is so fast: the others were there for the same part of their time beyond
        their programs as this one. All of it where nobody knows.
        """
        if disk_bytes_per_s is None or not self.own_bytes or self.beyond_s is None:
            return self.passed_bytes
        others, alone_s = self.passed_bytes / self.own_bytes - 1, self.own_bytes / disk_bytes_per_s
        # It is there for t = alone_s * (1 + others * t / beyond_s).
        rest_s = self.beyond_s - alone_s * others
        return min(self.passed_bytes, self.own_bytes * self.beyond_s / rest_s) if rest_s > 0 else self.passed_bytes


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
    return SeenOverhead(seconds, files, own_bytes, beyond_s, own_bytes)


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
    """What jobs together get of the disk. How long each was at it depends on that, so it is reckoned again with what was found."""
    known = [each for each in seen if each.files < MANY_FILES]
    rate = None
    for _ in range(ROUNDS):
        before, rate = rate, rate_of([(each.passed_at(rate), each.beyond_s) for each in known if each.beyond_s is not None])
        if rate is None or (before is not None and abs(rate - before) <= ALIKE * before):
            break
    return rate


def rate_of(points: list[tuple[float, float]]) -> float | None:
    """By how the time beyond the programs grows with the bytes: the slope of a line that a few odd attempts do not move. Where all pass
    about the same, there is none. Then they show how fast the disk is at least. It is never slower than that, whatever the line says:
    where most pass about the same, its slope is that of the few that do not. These alone tell of no disk that is slower than is assumed.
    """
    if len(points) < DISK_POINTS_MIN:
        return None
    matters = DISK_MATTERS_S * DEFAULT_DISK_BYTES_PER_S
    at_least = rate_at_least(points, matters)
    points = telling_points(points)
    sizes, seconds = zip(*points, strict=True)
    middle = median(sizes, [1.0] * len(points))
    apart = [abs(size - middle) for size in sizes if abs(size - middle) >= matters]
    least, most = DISK_BYTES_PER_S
    line = line_through(sizes, seconds, [1.0] * len(points)) if are_enough(apart, matters) else None
    if len(apart) < DISK_POINTS_MIN:
        rate = max(at_least, 1 / line.slope if line is not None else 0.0)
        return min(rate, most) if rate > DEFAULT_DISK_BYTES_PER_S else None
    return min(max(1 / line.slope, at_least, least), most) if line is not None else most


def are_enough(sizes: Sequence[float], matters_bytes: float) -> bool:
    """Each of them matters. Two are enough if they are as much together as DISK_POINTS_MIN of the smallest."""
    return len(sizes) >= 2 and sum(sizes) >= DISK_POINTS_MIN * matters_bytes


def telling_points(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The largest, and every so many of the rest."""
    ordered = sorted(points)
    rest, largest = ordered[:-DISK_POINTS_LARGEST], ordered[-DISK_POINTS_LARGEST:]
    return rest[:: -(-len(rest) // (DISK_POINTS_MAX - DISK_POINTS_LARGEST)) or 1] + largest


def rate_at_least(points: Sequence[tuple[float, float]], matters_bytes: float) -> float:
    """As if attempts took nothing beside their bytes: by those with so many bytes that they matter. 0: too few say so."""
    points = [point for point in points if point[0] >= matters_bytes]
    sizes = [size for size, _ in points]
    if not are_enough(sizes, matters_bytes):
        return 0.0
    return median([size / max(beyond_s, 1e-9) for size, beyond_s in points], sizes)


def beside_s(each: SeenOverhead, disk_bytes_per_s: float | None) -> float:
    """Seconds beside its program, without those of the disk."""
    if disk_bytes_per_s is None or each.beyond_s is None:
        return each.seconds
    return max(0.0, each.beyond_s - each.passed_at(disk_bytes_per_s) / disk_bytes_per_s)


def usual_mean(seen: Sequence[SeenOverhead], disk_bytes_per_s: float | None) -> float:
    """Of the seconds beside their programs. What took more than ODD_FACTOR times as long as is usual of an attempt with as many bytes
    counts as no more than that.
    """
    beside = [beside_s(each, disk_bytes_per_s) for each in seen]
    usual_s = median(beside, [1.0] * len(beside))
    disks = [max(0.0, each.beyond_s - value) if each.beyond_s is not None else 0.0 for each, value in zip(seen, beside, strict=True)]
    most = [ODD_FACTOR * usual_s + (ODD_FACTOR - 1) * disk_s for disk_s in disks]
    return sum(map(min, beside, most)) / len(beside)


def overhead_of(seen: Sequence[SeenOverhead], line_bytes_per_s: float = 0.0) -> Overhead:
    """The mean of the overheads, since they add up in their slots. An odd one, which waited for a busy machine, counts as no more than a
    few usual ones. `line_bytes_per_s`: what came over the node's line, all of which its disk took; it counts where attempts do not show
    how fast that is.
    """
    disk = disk_rate(seen)
    if disk is None and line_bytes_per_s > DEFAULT_DISK_BYTES_PER_S:
        disk = min(line_bytes_per_s, DISK_BYTES_PER_S[1])
    few = [each for each in seen if each.files < MANY_FILES]
    known = Overhead(usual_mean(few, disk), True, disk_bytes_per_s=disk) if len(few) >= SAMPLES_MIN else Overhead()
    many = [each for each in seen if each.files >= MANY_FILES]
    if not many:
        return known
    file_s = median([max(0.0, each.seconds - known.seconds) / each.files for each in many], [float(each.files) for each in many])
    return Overhead(known.seconds, known.measured, file_s, True, known.disk_bytes_per_s)
