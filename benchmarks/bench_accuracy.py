"""How far estimates are off: time and WAN bytes of seven workflows, predicted before they ran, beside what then happened.

Montage, POV-Ray, supernovae, and four recorded workflows replayed, of different kinds. Their data lie behind a long, narrow line on an
ssh server of the bed (root); each workflow has a state directory of its own. It runs --warm times, so that profiles and links are measured;
then cache and finals are taken away, the run is predicted, and it runs. Goals: makespan within 10 % (median) and 20 % (worst), WAN bytes
within 2 %. Again: `python benchmarks/bench_accuracy.py [--only NAME] [--warm N] [--rounds N] [--results FILE] [--dir DIRECTORY]`. With
--results rows are kept in FILE and the verdict is on all that are there, so that a long benchmark can be run in parts. With --shell-s 0.1
the account's shell takes that long to start.

With --nodes 2 or 4 there are so many private hosts with an I/O node each, the first two with a worker of one core, all by TLS; the
scheduler is on a host besides (cluster_bed.py).

With --made judge (or tune) 12 workflows of that half of the made set take their place, drawn by --seed: from file, sftp and s3
origins, over lines of 20, 100 and 1,000 Mbit/s and 5 and 50 ms, with plenty of room and little, some with a slow shell or a slow disk at
the origin (made_cases.py). Their first run is predicted as well, from an empty state directory: it should end between what the plan says.
Goals: makespan within 7 % (median), 15 % (nine of ten) and 25 % (worst), WAN bytes within 2 %, money within 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.accuracy_bed import Application, Bed, Replay, instance_of
from benchmarks.cluster_bed import ClusterBed
from benchmarks.made_accuracy import MadeRow, judged_made, played, print_made
from benchmarks.made_cases import TASKS_MAX, key_of, sampled_cases
from benchmarks.made_set import MANIFEST, made_paths
from benchmarks.measuring import verdict
from tests.testbed.network import Network, Wan, why_not
from tests.testbed.own_place import own_place
from tests.testbed.places import PROJECT
from tests.testbed.sshd import running_sshd
from tests.testbed.stager import Stager
from tests.testbed.usage import machine

MAKESPAN_MEDIAN, MAKESPAN_WORST, WAN_WORST = 0.10, 0.20, 0.02
DEADLINE_S = 600


CASES: tuple[Application | Replay, ...] = (
    Application("montage", "make_tiles.py"),
    Application("povray", "make_scenes.py", ("--width", "800")),
    Application("supernovae", "make_exposures.py", ("--exposures", "12")),
    Replay("montage 2mass-01d", "montage-chameleon-2mass-01d-001.json", "1", "0.1"),
    Replay("1000genome 8ch", "1000genome-chameleon-8ch-100k-001.json", "0.005", "0.0025"),
    Replay("epigenomics hep", "epigenomics-chameleon-hep-2seq-100k-001.json", "0.1", "0.015"),
    Replay("seismology 300p", "seismology-chameleon-300p-001.json", "1", "0.1"),
)


@dataclass(frozen=True)
class Row:
    """One run that was predicted: seconds and bytes over the WAN. `reported_s`: what `stager report` says had been predicted."""

    name: str
    predicted_s: float
    reported_s: float
    took_s: float
    predicted_bytes: float
    moved_bytes: float

    @property
    def time_off(self) -> float:
        return self.predicted_s / self.took_s - 1

    @property
    def bytes_off(self) -> float:
        return self.predicted_bytes / self.moved_bytes - 1 if self.moved_bytes else float(self.predicted_bytes != 0)


def take_away_finals(case: Application | Replay, data: Path, given: set[Path]) -> None:
    """A final that is there already is only looked at: the next run is to make and upload its own. `given`: what was there at first."""
    if isinstance(case, Replay):
        shutil.rmtree(data / "replay" / "finals", ignore_errors=True)
        return
    for path in set(files_in(data)) - given:
        path.unlink()


def files_in(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def run_of(case: Application | Replay, bed: Bed, stager: Stager, workflow: Path | None) -> str:
    """One run, by stager's command line. Its id."""
    if isinstance(case, Application):
        assert workflow is not None
        said = json.loads(stager.run("submit", workflow, "--quiet", "--json", deadline_s=DEADLINE_S).stdout)
        return str(said["run"])
    origin = f"sftp://lab{bed.sshd.data}/replay"
    scales = ["--bytes-scale", case.scales[0], "--time-scale", case.scales[1]]
    stager.run("replay", instance_of(case), *scales, "--origin", origin, "--quiet", deadline_s=DEADLINE_S)
    jobs = len(json.loads(instance_of(case).read_text())["workflow"]["specification"]["tasks"])
    # Beside it there are those that put the inputs there and that look at the finals.
    return str(next(run["run"] for run in stager.json("runs") if run["jobs_total"] == jobs))


def predicted(case: Application | Replay, bed: Bed, stager: Stager, workflow: Path | None) -> dict[str, Any]:
    """`makespan_s` and `wan_bytes`, before the run."""
    if isinstance(case, Application):
        assert workflow is not None
        if not bed.has_hosts:
            (choice,) = stager.json("cost-estimate", workflow, "--io-nodes", "1", "--draws", "0")["choices"]
            return dict(choice)
        words: list[str | Path] = [workflow]
    else:
        words = [instance_of(case), *case.scales, f"sftp://lab{bed.sshd.data}/replay"]
    asked = [sys.executable, PROJECT / "benchmarks" / "predicted.py", *words]
    return dict(json.loads(bed.here.run(asked, env=stager.environment()).stdout))


def measured(case: Application | Replay, bed: Bed, warm: int, rounds: int, looked_at: list[str]) -> list[Row]:
    stager, data, rows = bed.stager(), bed.sshd.data, []
    workflow = bed.workflow(case) if isinstance(case, Application) else None
    given = set(files_in(data))
    (data / "replay").mkdir()
    try:
        for number in range(warm + rounds):
            before = predicted(case, bed, stager, workflow) if number >= warm else None
            run = run_of(case, bed, stager, workflow)
            told = {line["name"]: line for line in stager.json("report", run)["lines"]}
            rows += [] if before is None else [row_of(case.name, before, told)]
            looked_at.append(stager.run("report", run).stdout)
            stager.run("gc", "--cache")
            take_away_finals(case, data, given)
    finally:
        bed.end(stager)
    return rows


def row_of(name: str, before: dict[str, Any], told: dict[str, dict[str, Any]]) -> Row:
    time, wan = told["makespan"], told["over the WAN"]
    return Row(name, before["makespan_s"], time["estimated"], time["actual"], before["wan_bytes"], wan["actual"])


def print_rows(rows: Sequence[Row]) -> None:
    heads = ("predicted", "report", "took", "off", "WAN predicted", "moved", "off")
    print(f"{'':<20}" + "".join(f"{head:>13}" for head in heads))
    for row in rows:
        cells = [f"{row.predicted_s:.2f} s", f"{row.reported_s:.2f} s", f"{row.took_s:.2f} s", f"{row.time_off:+.1%}"]
        cells += [f"{row.predicted_bytes / 1e6:.3f} MB", f"{row.moved_bytes / 1e6:.3f} MB", f"{row.bytes_off:+.2%}"]
        print(f"{row.name:<20}" + "".join(f"{cell:>13}" for cell in cells))


def judged(rows: Sequence[Row]) -> bool:
    """Whether all goals are met: the median and the worst of the workflows, each by the median of its own rounds."""
    by_name = {name: [row for row in rows if row.name == name] for name in dict.fromkeys(row.name for row in rows)}
    times = [statistics.median(abs(row.time_off) for row in each) for each in by_name.values()]
    sizes = [statistics.median(abs(row.bytes_off) for row in each) for each in by_name.values()]
    found = [
        ("makespan, median of the workflows", statistics.median(times), MAKESPAN_MEDIAN),
        ("makespan, worst", max(times), MAKESPAN_WORST),
        ("WAN bytes, worst", max(sizes), WAN_WORST),
    ]
    for what, off, most in found:
        print(f"goal: {what} off by {off:.1%}, wanted within {most:.0%}: {verdict(off <= most)}")
    return all(off <= most for _, off, most in found)


def made_rows(given: argparse.Namespace) -> int:
    """Runs what is not in --results yet, or is asked for by --only, and judges all rows of this draw."""
    tasks = {entry["name"]: entry["tasks"] for entry in json.loads(MANIFEST.read_text())["workflows"]}
    paths = {path.stem: path for path in made_paths(given.made) if tasks[path.stem] <= TASKS_MAX}
    cases = {key_of(case, given.made, given.seed): case for case in sampled_cases(list(paths), given.made, given.seed)}
    kept = json.loads(given.results.read_text()) if given.results and given.results.exists() else []
    rows = {row["key"]: MadeRow(**row) for row in kept if row["key"] in cases}
    for key, case in cases.items():
        if case.name in given.only if given.only else key not in rows:
            print(f"{case.name}: {case.words}", file=sys.stderr, flush=True)
            try:
                rows[key] = played(case, key, paths[case.name], given.warm, given.tries, given.dir)
            except AssertionError as problem:
                print(f"{case.name} could not be run: {problem}", file=sys.stderr, flush=True)
            if given.results:
                given.results.write_text(json.dumps([asdict(row) for row in rows.values()], indent=1))
    ordered = [rows[key] for key in cases if key in rows]
    print(f"made set, half {given.made!r}, seed {given.seed}, {len(ordered)} of {len(cases)} cases; {machine()}")
    print_made(ordered)
    return 0 if judged_made(ordered) and len(ordered) == len(cases) else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", help="a case by its name; again for more (default: all)")
    parser.add_argument("--made", choices=("tune", "judge"), help="workflows of this half of the made set")
    parser.add_argument("--seed", type=int, default=1, help="of the draw of --made")
    parser.add_argument("--warm", type=int, default=2, help="runs before the one that is predicted")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tries", type=int, default=3, help="of a judged run of --made, while others take more than 5 %% of the machine")
    parser.add_argument("--wan-mbit", type=float, default=100)
    parser.add_argument("--rtt-ms", type=float, default=20)
    parser.add_argument("--shell-s", type=float, default=0.0, help="what the start files of the account's shell take")
    parser.add_argument("--nodes", type=int, help="private hosts with an I/O node each (default: none, the scheduler's own node)")
    parser.add_argument("--results", type=Path, help="keep the rows there and judge all that are")
    parser.add_argument("--report", action="store_true", help="print what `stager report` says of each run")
    parser.add_argument("--dir", help="where data and state directories are made")
    given = parser.parse_args()
    if reason := why_not():
        sys.exit(f"no hosts on this machine: {reason}")
    if given.made:
        return made_rows(given)
    if unknown := set(given.only or ()) - {case.name for case in CASES}:
        sys.exit(f"there is no case {', '.join(sorted(unknown))}; there are {', '.join(case.name for case in CASES)}")
    kept = [Row(**row) for row in json.loads(given.results.read_text())] if given.results and given.results.exists() else []
    rows, looked_at = kept, list[str]()
    for case in (case for case in CASES if not given.only or case.name in given.only):
        with own_place(given.dir) as place, Network() as net:
            (place / "ssh").mkdir(mode=0o700)
            lab = net.host("lab", wan=Wan(given.rtt_ms / 1000, given.wan_mbit))
            with running_sshd(place / "ssh", where=lab) as sshd:
                if given.shell_s:
                    (sshd.directory / ".bashrc").write_text(f"sleep {given.shell_s:g}\n")
                bed = ClusterBed(sshd, lab, net, place, given.nodes) if given.nodes else Bed(sshd, net.host("node"), place)
                found = measured(case, bed, given.warm, given.rounds, looked_at)
        rows = [*(row for row in rows if row.name != case.name), *found]
        if given.results:
            given.results.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    print("\n".join(looked_at) if given.report else "", end="\n" if given.report else "")
    print(f"line of {given.wan_mbit:g} Mbit/s, {given.rtt_ms:g} ms there and back; {machine()}")
    print_rows(rows)
    return 0 if judged(rows) else 1


if __name__ == "__main__":
    os.environ.setdefault("STAGER_TESTBED", "1")
    sys.exit(main())
