"""How near real runs come to the fastest that any run could be, where one thing limits: the line, the cores or the longest chain.

Each round measures the line by one plain TCP stream each way and the cores by as many programs that only compute, then runs `stager submit`
on a fresh state directory: scheduler and I/O node are started, inputs come from an sshd behind the line, finals go back there and are
verified. The bound is `planning/bounds.py` with what was measured: that round's line, the CPU time (of the chain: the wall time) that the
jobs of that run took by their own clocks on the `cores` that there were, the sizes that they made, and a disk as fast as its page cache, so
that nothing that stager adds is in it. The makespan is the run's, as everywhere: from its submit until all finals are verified at the
origin; `first`, `jobs`, `last` are its parts: until a job begins, until no job runs any more, to the end. `command` is all that a user
waits for: before the run Python starts, inputs are looked up, scheduler and node are started. A round in which others took more than
--others of the machine is put aside and measured again, twice at most; then the rounds count in which others took least.
Goal: the middle of the ratios of 5 rounds is at most 1.15 where one term of the bound is twice those of other kinds.
Again: `python benchmarks/bench_bound.py [--rounds 5] [--only fetch,upload,cpu,chain] [--rate 80] [--rtt-ms 20] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from msgspec import structs

from benchmarks.measuring import verdict, watched
from stager.client import RunClient, connect
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.bounds import Bound, Limit, lower_bound
from stager.planning.plan import Plan
from tests.testbed.network import Host, Network, Wan, why_not
from tests.testbed.own_place import own_place
from tests.testbed.processes import descendants
from tests.testbed.sshd import Sshd, running_sshd
from tests.testbed.stager import Stager
from tests.testbed.usage import cpu_of, machine

GOAL, TWICE, ROUNDS, CORES = 1.15, 2.0, 5, 2
OTHERS_MAX, ASIDE_MAX = 0.05, 2
ORIGIN, GREETINGS = "lab", 5
LINE_S, CORES_S, CHUNK_BYTES, DISK_BYTES = 3.0, 2.0, 1 << 16, 256 << 20
BURN = Path(__file__).with_name("burn.py")


@dataclass(frozen=True)
class Case:
    """`text`: jobs of the workflow. `inputs`, `finals`: bytes at the origin, by name, before and after. `clock`: which of a job's own times
    counts.
    """

    name: str
    about: str
    limit: Limit
    text: str
    inputs: Mapping[str, int]
    finals: Mapping[str, int]
    clock: str = "cpu_s"
    shell_checksum: bool = True


def burn(*words: str) -> str:
    return json.dumps([sys.executable, "-I", "-S", str(BURN), *words])


def fetch_case(line: float, files: int = 16) -> Case:
    """Twelve seconds of inputs, each read by a job of a tenth of a second."""
    size = int(12 * line / files)
    text = f"""\
jobs:
  look:
    foreach: {{n: 1..{files}}}
    run: {burn("cpu", "0.1", "s{n}:1000")}
    inputs: ["lab:in/f{{n}}"]
    outputs: {{"s{{n}}": {{to: "lab:out/", size: 1000}}}}
"""
    names = range(1, files + 1)
    return Case(
        "fetch", f"{files} inputs", Limit.WAN, text, {f"in/f{n}": size for n in names}, dict.fromkeys((f"out/s{n}" for n in names), 1000)
    )


def upload_case(line: float, files: int = 16, shell_checksum: bool = True) -> Case:
    """Twelve seconds of finals, each made in a tenth of a second."""
    size = int(12 * line / files)
    text = f"""\
jobs:
  make:
    foreach: {{n: 1..{files}}}
    run: {burn("cpu", "0.1", f"f{{n}}:{size}")}
    inputs: [lab:in/seed]
    outputs: {{"f{{n}}": {{to: "lab:out/", size: {size}}}}}
"""
    name, how = ("upload", "remote checksum") if shell_checksum else ("readback", "read back")
    finals = {f"out/f{n}": size for n in range(1, files + 1)}
    return Case(name, f"{files} finals, {how}", Limit.WAN, text, {"in/seed": 1000}, finals, shell_checksum=shell_checksum)


def cpu_case(jobs: int, each_s: float) -> Case:
    """Twelve seconds of work for all cores, joined at the end."""
    text = f"""\
jobs:
  work:
    foreach: {{n: 1..{jobs}}}
    run: {burn("cpu", f"{each_s:g}", "p{n}:1000")}
    inputs: [lab:in/seed]
    outputs: {{"p{{n}}": {{size: 1000}}}}
  join:
    run: {burn("cpu", "0", "all:1000")}
    inputs: ["p*"]
    outputs: {{all: {{to: "lab:out/", size: 1000}}}}
"""
    return Case(f"cpu{jobs}", f"{jobs} jobs of {each_s:g} s", Limit.CPU, text, {"in/seed": 1000}, {"out/all": 1000})


def chain_case(jobs: int, each_s: float) -> Case:
    """One job after the other, each waiting most of its time, with a megabyte handed on."""
    size = 1_000_000
    parts = ["jobs:"]
    for number in range(1, jobs + 1):
        before = "lab:in/seed" if number == 1 else f"c{number - 1}"
        to = f'to: "lab:out/", size: {size}' if number == jobs else f"size: {size}"
        words = burn("wait", f"{each_s:g}", f"c{number}:{size}")
        parts.append(f'  step{number}: {{run: {words}, inputs: ["{before}"], outputs: {{c{number}: {{{to}}}}}}}')
    text, finals = "\n".join(parts) + "\n", {f"out/c{jobs}": size}
    return Case("chain", f"{jobs} jobs of {each_s:g} s, one by one", Limit.PATH, text, {"in/seed": size}, finals, "wall_s")


def cases_of(line: float) -> list[Case]:
    """`line`: its bytes per second, about."""
    cpu = cpu_case(24, 1.0), cpu_case(120, 0.2)
    return [fetch_case(line), upload_case(line), upload_case(line, shell_checksum=False), *cpu, chain_case(12, 1.0)]


# What the bound is made of


@dataclass(frozen=True)
class LineRates:
    """`fetch_bytes_per_s`, `upload_bytes_per_s`: of one plain TCP stream, at speed; `rtt_s`: the quickest of several greetings."""

    fetch_bytes_per_s: float
    upload_bytes_per_s: float
    rtt_s: float


def line_between(lab: Host, node: Host) -> LineRates:
    rates: list[float] = []
    acts: list[Callable[[socket.socket], object]] = [*[lambda peer: peer.recv(1)] * GREETINGS, pour, lambda peer: rates.append(taken(peer))]
    with lab.inside():
        server = socket.create_server((lab.address, 0))
    port = server.getsockname()[1]

    def serve() -> None:
        """One after the other, as they come."""
        for act in acts:
            peer, _ = server.accept()
            with peer, contextlib.suppress(OSError):
                act(peer)

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    with server:
        greetings = []
        for _ in range(GREETINGS):
            begun = time.monotonic()
            with node.connect(lab.address, port):
                greetings.append(time.monotonic() - begun)
        with node.connect(lab.address, port) as down:
            fetch = taken(down)
        with node.connect(lab.address, port) as up, contextlib.suppress(OSError):
            pour(up)
        serving.join()
    return LineRates(fetch, rates[0], min(greetings))


def pour(peer: socket.socket) -> None:
    block = bytes(CHUNK_BYTES)
    while True:
        peer.sendall(block)


def taken(peer: socket.socket) -> float:
    """Bytes per second in the second half of `LINE_S`: the first is for the connection to come to speed."""
    begun, halfway, counted = time.monotonic(), 0.0, 0
    while (now := time.monotonic()) < begun + LINE_S:
        got = len(peer.recv(CHUNK_BYTES))
        if now >= begun + LINE_S / 2:
            halfway = halfway or now
            counted += got
    return counted / (time.monotonic() - halfway)


def disk_bytes_per_s(place: Path) -> float:
    """Of the page cache over it, which is as fast as a node could be."""
    path, block = place / "measured", os.urandom(1 << 20)
    begun = time.monotonic()
    with path.open("wb", buffering=0) as out:
        for _ in range(DISK_BYTES >> 20):
            out.write(block)
    rate = DISK_BYTES / (time.monotonic() - begun)
    path.unlink()
    return rate


def cores_left() -> float:
    """Of `CORES` programs that only compute, at the same time: the CPU time that they got of the time that it took."""
    argv = [sys.executable, "-I", "-S", str(BURN), "cpu", f"{CORES_S:g}"]
    begun = time.monotonic()
    with own_place() as empty:
        burning = [subprocess.Popen(argv, cwd=empty, stdout=subprocess.DEVNULL) for _ in range(CORES)]
        assert not any(program.wait() for program in burning)
    return min(float(CORES), CORES * CORES_S / (time.monotonic() - begun))


def bound_of(workflow: Workflow, plan: Plan, jobs_s: Mapping[str, float], line: LineRates, disk: float, finals: Mapping[str, int]) -> Bound:
    """`jobs_s`: what each job took by its own clock."""
    node = Node(plan.jobs[0].node, plan.capacity_bytes, CORES, disk_bytes_per_s=disk, network_bytes_per_s=disk)
    link = OriginLink(ORIGIN, line.fetch_bytes_per_s, line.upload_bytes_per_s, line.rtt_s, measured=True)
    known = {file.lfn: file.expected_bytes for file in plan.files}
    assert all(known[Path(path).name] == size for path, size in finals.items()), "the plan knows other sizes than were made"
    told = replace(plan, jobs=tuple(structs.replace(job, compute_s=jobs_s[job.job]) for job in plan.jobs))
    return lower_bound(workflow, Topology((node,), (link,)), told)


def dominance(bound: Bound, limit: Limit) -> float:
    """How many times the busy seconds of the next other kind its kind has."""
    others = max((bound.busy_s(other) for other in Limit if other is not limit), default=0.0)
    return bound.busy_s(limit) / others if others else float("inf")


# One run


@dataclass(frozen=True)
class Pair:
    """Of one round, in seconds. `parts`: the makespan before the first job began, from there to the end of the last, and from there.
    `busy`, `others`: shares of the machine.
    """

    bound: Bound
    makespan_s: float
    parts: tuple[float, float, float]
    command_s: float
    cores: float = float(CORES)
    busy: float = 0.0
    others: float = 0.0

    @property
    def ratio(self) -> float:
        return self.makespan_s / self.bound.least_s


@dataclass
class Bed:
    lab: Host
    node: Host
    net: Network
    sshd: Sshd
    place: Path
    rounds: Iterator[int] = field(default_factory=lambda: iter(range(10**9)))

    def origin(self, case: Case) -> str:
        options = {"url": self.sshd.url(), "credentials": f"key:{self.sshd.identity_file}", "known_hosts": str(self.sshd.known_hosts)}
        return json.dumps(options | {"shell_checksum": case.shell_checksum})

    def pair(self, case: Case) -> Pair:
        """A fresh state directory and an empty destination."""
        place = self.place / f"r{next(self.rounds)}"
        place.mkdir()
        for path in self.sshd.data.glob("out/*"):
            path.unlink()
        lay(self.sshd.data, case.inputs)
        workflow = place / "bound.yml"
        workflow.write_text(f"stager: 1\nname: {case.name}\norigins: {{lab: {self.origin(case)}}}\n{case.text}")
        disk, line, cores = disk_bytes_per_s(place), line_between(self.lab, self.node), cores_left()
        stager = Stager(place / "s", place / "home", idle_exit_s=30, where=self.node)
        try:
            before_s = self.ours_s(stager)
            with watched() as watch:
                stager.run("submit", workflow, "--quiet", deadline_s=200)
            ours_s = self.ours_s(stager) - before_s
            check_finals(self.sshd.data, case.finals)
            client = connect(place / "s")
            assert client is not None, "the scheduler is gone"
            with client:
                pair = pair_of(case, client.run(client.runs()[0].run), line, disk, cores, watch.took_s)
        finally:
            stager.end()
        others = max(0.0, watch.busy - ours_s / (os.cpu_count() or 1) / watch.took_s)
        return replace(pair, busy=watch.busy, others=others)

    def ours_s(self, stager: Stager) -> float:
        """Processor time so far of all that the bed runs. What the kernel does in nobody's name counts as others'."""
        assert self.sshd.server is not None, "not started"
        servers = [self.sshd.server.pid, *descendants(self.sshd.server.pid), *(line.pid for line in self.net.lines)]
        used = [cpu_of(pid) for pid in (os.getpid(), *servers, stager.scheduler_pid(), stager.node_pid())]
        return sum(cpu.own_s + cpu.children_s for cpu in used)

    def quiet_pairs(self, case: Case, rounds: int, others_max: float = OTHERS_MAX) -> tuple[list[Pair], int]:
        """(as many as wanted, how many were put aside). Where too many were not quiet, those in which others took least."""
        pairs: list[Pair] = []
        while len(pairs) < rounds + ASIDE_MAX and sum(pair.others <= others_max for pair in pairs) < rounds:
            pairs.append(self.pair(case))
        return sorted(pairs, key=lambda pair: pair.others)[:rounds], len(pairs) - rounds


def pair_of(case: Case, run: RunClient, line: LineRates, disk: float, cores: float, command_s: float) -> Pair:
    summary, history, workflow = run.summary(), run.history(), run.workflow()
    slower = CORES / cores if case.clock == "cpu_s" else 1.0
    jobs_s = {job: slower * own_clock(run, job, case.clock) for job in workflow.jobs}
    bound = bound_of(workflow, run.plan(), jobs_s, line, disk, case.finals)
    first_s, last_s = min(span.begun_s for span in history.attempts), max(span.ended_s for span in history.attempts)
    return Pair(bound, summary.wall_s, (first_s, last_s - first_s, summary.wall_s - last_s), command_s, cores)


def own_clock(run: RunClient, job: str, clock: str) -> float:
    """Seconds that burn.py printed, of the job's last attempt."""
    said = [log.text for log in run.logs(job).logs if log.stream == "stdout"]
    return float(json.loads(said[-1])[clock])


def lay(data: Path, inputs: Mapping[str, int]) -> None:
    """Old enough to be settled; new bytes each time, so that nothing anywhere knows them."""
    for path, size in inputs.items():
        (data / path).parent.mkdir(parents=True, exist_ok=True)
        (data / path).write_bytes(os.urandom(size))
        os.utime(data / path, (1_700_000_000, 1_700_000_000))


def check_finals(data: Path, finals: Mapping[str, int]) -> None:
    found = {path: (data / path).stat().st_size for path in finals if (data / path).exists()}
    assert found == dict(finals), f"at the destination: {found}, wanted {dict(finals)}"


# All rounds


def row_of(case: Case, pairs: list[Pair], aside: int = 0) -> tuple[str, bool]:
    """(the line, whether it meets the goal). A row that nothing dominates is no row of the goal, and says so by failing."""
    middle = lambda take: statistics.median(take(pair) for pair in pairs)  # noqa: E731
    ratio, dominates = middle(lambda pair: pair.ratio), middle(lambda pair: dominance(pair.bound, case.limit))
    ratios = [pair.ratio for pair in pairs]
    good = ratio <= GOAL and dominates >= TWICE
    parts = "".join(f"{middle(lambda pair, at=at: pair.parts[at]):>7.2f}" for at in range(3))
    figures = (
        f"{middle(lambda pair: pair.bound.least_s):>7.2f}{dominates:>7.1f}{middle(lambda pair: pair.makespan_s):>10.2f}{ratio:>7.3f}"
        f"  {min(ratios):.3f}-{max(ratios):.3f}{parts}{middle(lambda pair: pair.command_s):>9.2f}"
        f"{middle(lambda pair: pair.cores):>7.2f}{middle(lambda pair: pair.others):>7.0%}"
    )
    said = (
        verdict(good)
        + ("" if dominates >= TWICE else f", no term is {TWICE:g} times the others")
        + (f", {aside} put aside" if aside else "")
    )
    return f"{case.name:<10}{case.about:<28}{case.limit.value:<14}{figures}  {said}", good


HEAD = (
    f"{'':<10}{'':<28}{'term':<14}{'bound':>7}{'times':>7}{'makespan':>10}{'ratio':>7}  {'lowest-most':<11}"
    f"{'first':>7}{'jobs':>7}{'last':>7}{'command':>9}{'cores':>7}{'others':>7}"
)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--rate", type=float, default=80.0, help="of the line, in Mbit/s")
    parser.add_argument("--rtt-ms", type=float, default=20.0)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[], help="names of rows")
    parser.add_argument("--others", type=float, default=OTHERS_MAX, help="share of the machine that other programs may take in a round")
    parser.add_argument("--dir", help="where the state directories are made; the disk there counts")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if reason := why_not():
        print(f"not measured: {reason}")
        return 1
    cases = [case for case in cases_of(given.rate * 1e6 / 8) if not given.only or case.name in given.only]
    print(f"line: {given.rate:g} Mbit/s, RTT {given.rtt_ms:g} ms; {CORES} slots; middle of {given.rounds} rounds; {machine()}\n{HEAD}")
    missed = []
    with own_place(given.dir) as place, own_place("/dev/shm") as data, Network() as net:
        lab, node = net.host("lab", wan=Wan(given.rtt_ms / 1000, given.rate)), net.host("node0")
        (place / "ssh").mkdir(mode=0o700)
        with running_sshd(place / "ssh", data / "data", where=lab) as sshd:
            bed = Bed(lab, node, net, sshd, place)
            for case in cases:
                line, good = row_of(case, *bed.quiet_pairs(case, given.rounds, given.others))
                print(line, flush=True)
                missed += [] if good else [case.name]
    print(f"goal: a makespan of at most {GOAL:g} times the bound: {verdict(not missed)}" + (f" ({', '.join(missed)})" if missed else ""))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
