"""What compute hosts cost and bring: an attempt here and on hosts, jobs a second beside bare Dask, work that sleeps on 1, 2, 4 hosts,
how soon a lost I/O node is known, and what three nodes and a scheduler use when nothing runs.

An attempt's cost is by two chains of one job after the other, a long and a short one: what one more job takes. Linked: hosts that share
the node's files. Copied: private hosts of the bed, all by TLS.
Goals: an attempt on a host at most 40 ms dearer than one here; with k hosts at least 0.9 of the speed-up that the lower bound allows; a
node that is lost or cut off is known to be away within 15 s; idle below 2 % of a core.
Again: `python benchmarks/bench_hosts.py [--only attempt,rate,speed,lost,idle] [--rounds 3] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import Table, timed, verdict, watched
from stager.client import connect
from tests.e2e.apart_rig import Apart
from tests.e2e.hosts_rig import Hosts
from tests.testbed.network import Network, why_not
from tests.testbed.own_place import own_place
from tests.testbed.pool import Pool
from tests.testbed.processes import is_alive
from tests.testbed.stager import Stager
from tests.testbed.usage import cpu_of, machine

ATTEMPT_MOST_MS, SPEED_UP_LEAST, LOST_MOST_S, IDLE_MOST = 40.0, 0.9, 15.0, 0.02
CHAIN_JOBS, RATE_JOBS, RATE_HOSTS, RATE_CORES = 40, 200, 2, 2
HOSTS = (1, 2, 4)
IDLE_S, DEADLINE_S = 60.0, 600.0
LOCAL, LINKED, COPIED, BARE = "here", "Dask, linked", "Dask, copied, TLS", "bare Dask"
# Of a mosaic: jobs of each step, and how long each of them sleeps.
STEPS = (
    ("project", 48, 1.0),
    ("difference", 96, 0.4),
    ("concatenate", 1, 0.3),
    ("model", 1, 0.5),
    ("background", 48, 0.5),
    ("add", 1, 0.8),
)


def chain(jobs: int, origin: str) -> str:
    """Each job reads what the one before it made; the last makes a final."""
    lines = ["stager: 1", f"name: chain{jobs}", "origins:", f"  lab: {origin}", "jobs:"]
    for number in range(1, jobs + 1):
        before = "lab:seed" if number == 1 else f"c{number - 1}"
        to = 'to: "lab:out/", on_exists: replace, size: 10000' if number == jobs else "size: 10000"
        lines.append(f'  step{number}: {{run: [cp, /etc/passwd, c{number}], inputs: ["{before}"], outputs: {{c{number}: {{{to}}}}}}}')
    return "\n".join(lines) + "\n"


def many(jobs: int) -> str:
    return f"stager: 1\nname: many\njobs:\n  nothing:\n    foreach: {{n: 1..{jobs}}}\n    run: ['true']\n"


def mosaic() -> str:
    """The shape of Montage, of jobs that only wait: each step reads all that the step before it made."""
    lines, before = ["stager: 1", "name: mosaic", "jobs:"], ""
    for name, count, sleep_s in STEPS:
        inputs = f'    inputs: ["{before}/*"]\n' if before else ""
        run = f"sleep {sleep_s} && mkdir -p {name} && echo {{n}} > {name}/{{n}}"
        lines.append(f'  {name}:\n    foreach: {{n: 1..{count}}}\n{inputs}    run: [sh, -c, "{run}"]')
        lines.append(f'    outputs: {{"{name}/{{n}}": {{size: 100}}}}')
        before = name
    return "\n".join(lines) + "\n"


def bound_s(cores: int) -> float:
    """No run of the mosaic is shorter: all cores sleep all the time, or one job of each step after the other."""
    return max(sum(count * sleep_s for _, count, sleep_s in STEPS) / cores, sum(sleep_s for _, _, sleep_s in STEPS))


def wall_s(stager: Stager, text: str) -> float:
    """Of a run, from its submit to its end, by its own clock."""
    workflow = stager.home / "workflow.yml"
    workflow.write_text(text)
    run = stager.submit(workflow)
    client = connect(stager.state_dir)
    assert client is not None
    with client:
        answer = client.run(run).wait_finished(DEADLINE_S)
        assert answer.state == "succeeded", f"{answer}\n{stager.log_tail()}"
        return client.run(run).summary().wall_s


@contextlib.contextmanager
def here(place: Path) -> Iterator[Stager]:
    stager = Stager(place / "s", place / "home", idle_exit_s=DEADLINE_S)
    stager.home.mkdir()
    try:
        yield stager
    finally:
        stager.end()


@contextlib.contextmanager
def linked(place: Path, hosts: int, cores: int) -> Iterator[Stager]:
    made = Hosts(place, {f"h{number}": cores for number in range(hosts)})
    made.rig.stager.idle_exit_s = DEADLINE_S
    made.rig.stager.env = {"STAGER_POOL": made.pool.address}
    try:
        made.until(lambda: len(made.seen()) == hosts, "the hosts")
        yield made.rig.stager
    finally:
        made.end()


@contextlib.contextmanager
def apart(place: Path) -> Iterator[Apart]:
    with Network() as net:
        made = Apart(net, place, {})
        made.stager.home.mkdir(exist_ok=True)
        made.stager.idle_exit_s = DEADLINE_S
        try:
            made.start()
            yield made
        finally:
            made.end()


def step_ms(stager: Stager, origin: str) -> float:
    """What one more job of a chain takes."""
    short, long = (wall_s(stager, chain(jobs, origin)) for jobs in (1, 1 + CHAIN_JOBS))
    return (long - short) / CHAIN_JOBS * 1000


def attempts(places: Iterator[Path], rounds: int) -> bool:
    table = Table("ms")

    def rows(side: str, stager: Stager, origin: str) -> None:
        wall_s(stager, chain(1, origin))
        for _ in range(rounds):
            with watched() as watch:
                cost = step_ms(stager, origin)
            table.add("one more job", side, cost, watch.busy)

    for side, bed in ((LOCAL, here), (LINKED, lambda place: linked(place, 1, 1))):
        place = next(places)
        data = place / "seeds"
        data.mkdir()
        (data / "seed").write_text("seed\n")
        with bed(place) as stager:
            rows(side, stager, f"file:{data}")
    with apart(next(places)) as cluster:
        cluster.put("seed", b"seed\n")
        rows(COPIED, cluster.stager, cluster.origin())
    print(table.text())
    dearer = {side: table.median("one more job", side) - table.median("one more job", LOCAL) for side in (LINKED, COPIED)}
    for side, found in dearer.items():
        print(f"{side}: {found:.1f} ms over {LOCAL}, goal at most {ATTEMPT_MOST_MS:g}: {verdict(found <= ATTEMPT_MOST_MS)}")
    return max(dearer.values()) <= ATTEMPT_MOST_MS


def bare_dask(jobs: int) -> Callable[[], object]:
    """The same processes, by nothing but Dask: as many workers and threads."""
    import distributed

    def work() -> None:
        futures = client.map(lambda _: subprocess.run(["true"], check=True).returncode, range(jobs), pure=False)
        assert set(client.gather(futures)) == {0}

    cluster = distributed.LocalCluster(n_workers=RATE_HOSTS, threads_per_worker=RATE_CORES, processes=True, dashboard_address=None)
    client = distributed.Client(cluster)
    return work


def rates(places: Iterator[Path], rounds: int) -> bool:
    table = Table("jobs/s")
    with linked(next(places), RATE_HOSTS, RATE_CORES) as stager:
        wall_s(stager, many(2))
        for _ in range(rounds):
            with watched() as watch:
                took_s = wall_s(stager, many(RATE_JOBS))
            table.add(f"{RATE_JOBS} of true", LINKED, RATE_JOBS / took_s, watch.busy)
    work = bare_dask(RATE_JOBS)
    work()
    for _ in range(rounds):
        took_s, busy = timed(work)
        table.add(f"{RATE_JOBS} of true", BARE, RATE_JOBS / took_s, busy)
    with here(next(places)) as stager:
        wall_s(stager, many(2))
        for _ in range(rounds):
            with watched() as watch:
                took_s = wall_s(stager, many(RATE_JOBS))
            table.add(f"{RATE_JOBS} of true", LOCAL, RATE_JOBS / took_s, watch.busy)
    print(table.text())
    print("Bare Dask stages, journals, measures and isolates nothing; there is no goal.")
    return True


def speeds(places: Iterator[Path], _: int) -> bool:
    took: dict[int, float] = {}
    good = True
    print(f"{'':10} {'took':>8} {'bound':>8} {'speed-up':>9} {'of the bound':>13}  busy")
    for hosts in HOSTS:
        with linked(next(places), hosts, 1) as stager, watched() as watch:
            took[hosts] = wall_s(stager, mosaic())
        speed_up = took[HOSTS[0]] / took[hosts]
        share = speed_up / (bound_s(HOSTS[0]) / bound_s(hosts))
        good &= share >= SPEED_UP_LEAST
        words = f"{hosts} host(s) {took[hosts]:8.1f} {bound_s(hosts):8.1f} {speed_up:9.2f} {share:13.2f}  {watch.busy:4.0%}"
        print(words if hosts == HOSTS[0] else f"{words}  goal {SPEED_UP_LEAST:g}: {verdict(share >= SPEED_UP_LEAST)}", flush=True)
    return good


def away_s(cluster: Apart, lose: Callable[[], object]) -> float:
    """From the loss until the scheduler says that the node is away."""

    def state() -> str:
        return next(str(node["state"]) for node in cluster.stager.json("node", "list") if node["node"] == "b")

    cluster.until(lambda: state() != "away", "node b")
    begun = time.monotonic()
    lose()
    cluster.until(lambda: state() == "away", "the loss of node b")
    return time.monotonic() - begun


def losses(places: Iterator[Path], rounds: int) -> bool:
    found: dict[str, list[float]] = {"killed": [], "cut off": []}
    with apart(next(places)) as cluster:
        others = (cluster.here, cluster.lab, cluster.sites["a"])
        for _ in range(rounds):
            found["killed"].append(away_s(cluster, cluster.nodes["b"].kill))
            cluster.nodes["b"].start()
            with contextlib.ExitStack() as parted:
                cut = lambda: [parted.enter_context(cluster.net.parted(cluster.sites["b"], other)) for other in others]  # noqa: E731
                found["cut off"].append(away_s(cluster, cut))
    good = True
    for how, times in found.items():
        good &= max(times) <= LOST_MOST_S
        spread = f"{statistics.median(times):.1f} s ({min(times):.1f} to {max(times):.1f})"
        print(f"a node that is {how} is away after {spread}, goal {LOST_MOST_S:g} s: {verdict(max(times) <= LOST_MOST_S)}")
    return good


def pool_pids(pool: Pool) -> list[int | None]:
    own = [pool.server.pid] if pool.server else []
    return own + [pid for host in pool.hosts.values() for pid in (host.server.pid, host.worker_pid())]


def idle(places: Iterator[Path], _: int) -> bool:
    with apart(next(places)) as cluster:
        cluster.put("seed", b"seed\n")
        wall_s(cluster.stager, chain(2, cluster.origin()))
        own = [cluster.stager.scheduler_pid(), cluster.stager.node_pid(), *(node.pid for node in cluster.nodes.values())]
        groups = {"scheduler": own[:1], "three I/O nodes": own[1:], "Dask's meeting place and two workers": pool_pids(cluster.pool)}
        before = {name: sum(cpu_of(pid).own_s for pid in pids) for name, pids in groups.items()}
        time.sleep(IDLE_S)
        used = {name: (sum(cpu_of(pid).own_s for pid in pids) - before[name]) / IDLE_S for name, pids in groups.items()}
        ended = [name for name, pids in groups.items() if not all(pid and is_alive(pid) for pid in pids)]
        assert not ended, f"a process ended while it was measured: {ended}"
    for name, share in used.items():
        print(f"{name:40} {share:6.2%} of a core")
    ours = used["scheduler"] + used["three I/O nodes"]
    print(f"scheduler and nodes together {ours:.2%}, goal below {IDLE_MOST:.0%}: {verdict(ours < IDLE_MOST)}")
    return ours < IDLE_MOST


PARTS = {"attempt": attempts, "rate": rates, "speed": speeds, "lost": losses, "idle": idle}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(PARTS), help=f"of {','.join(PARTS)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dir", type=Path, help="where the state directories are made; the disk there counts")
    options = parser.parse_args()
    reason = why_not()
    if reason:
        sys.exit(f"no hosts on this machine: {reason}")
    good = True
    with own_place(options.dir) as made:
        numbers = itertools.count()

        def places() -> Iterator[Path]:
            while True:
                place = made / f"{next(numbers)}"
                place.mkdir()
                yield place

        for name in options.only:
            print(f"\n== {name}", flush=True)
            good &= PARTS[name](places(), options.rounds)
    print(f"\n{machine()}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
