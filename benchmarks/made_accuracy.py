"""Made workflows really run, predicted before: on a first run with nothing measured, and again after runs that measured.

May know: the testbed, the cases that were drawn, `replayed.py`. One rule: a run is predicted by what an empty state directory, or the runs
before it, know; nothing of its line, disk or shell is told to stager.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from benchmarks.made_cases import DISK_BYTES_PER_S, MadeCase, Scales, scales_of
from benchmarks.measuring import verdict
from benchmarks.own_share import Account, own_account
from benchmarks.slow_disk import slow_disk
from tests.testbed.network import Host, Network, Wan
from tests.testbed.own_place import own_place
from tests.testbed.places import PROJECT
from tests.testbed.s3 import running_s3
from tests.testbed.sshd import running_sshd
from tests.testbed.stager import Stager
from tests.testbed.workflows import JOB_PATH

MEDIAN, NINE_OF_TEN, WORST = 0.07, 0.15, 0.25
WAN_WORST, MONEY_WORST, HELD_LEAST = 0.02, 0.10, 0.9
BUCKET = "made"
SHELL_S = 0.1
RUN_S_MAX = 300.0
DISK_BYTES = 6 << 30
CAUSES_SHOWN = 3
# Of the machine: what others may have while a run is judged.
OTHERS_MOST = 0.05
# No step and no least: what a run takes is what is paid, to the millisecond.
PRICES = """stager-prices: 1
date: 2026-11-23
currency: USD
sources: {made: "as AWS had it in us-east-1, billed by the moment"}
instances:
  - {name: m6i.xlarge, provider: aws, region: us-east-1, per_hour: 0.192, billed_every: 0s, billed_at_least: 0s, source: made}
egress: [{provider: aws, region: us-east-1, tiers: [{per_gb: 0.09}], source: made}]
requests: [{provider: aws, region: us-east-1, reads_per_1000: 0.0004, writes_per_1000: 0.005, source: made}]
storage:
  - {kind: object, provider: aws, region: us-east-1, per_gb_month: 0.023, source: made}
  - {kind: volume, provider: aws, region: us-east-1, per_gb_month: 0.08, source: made}
"""


@dataclass(frozen=True)
class Range:
    """What a plan said nine of ten runs end between, and what this one took."""

    least_s: float
    expected_s: float
    most_s: float
    took_s: float

    @property
    def held(self) -> bool:
        return self.least_s <= self.took_s <= self.most_s


@dataclass(frozen=True)
class MadeRow:
    """Of one case: its first run, predicted from nothing (`unsaid`: and as if nothing had been declared), and the one that is judged.
    `others`: the share of the machine that others had meanwhile (None: nobody can tell). `causes`: what `stager report` has of where
    the time went, by difference.
    """

    name: str
    words: str
    key: str
    bound_s: float
    first: dict[str, float]
    unsaid: dict[str, float]
    predicted_s: float
    took_s: float
    again_s: list[float]
    predicted_bytes: float
    moved_bytes: float
    predicted_money: float
    paid_money: float
    others: float | None
    causes: list[str]

    @property
    def time_off(self) -> float:
        return self.predicted_s / self.took_s - 1

    @property
    def bytes_off(self) -> float:
        return self.predicted_bytes / self.moved_bytes - 1 if self.moved_bytes else float(self.predicted_bytes != 0)

    @property
    def money_off(self) -> float:
        return self.predicted_money / self.paid_money - 1

    @property
    def ranges(self) -> tuple[Range, Range]:
        return Range(**self.first), Range(**self.unsaid)


@dataclass
class Site:
    """Where the data are: `url` for stager, `fill` puts a directory's content there, `take_finals` what runs left; `disk`: what is there as
    files.
    """

    url: str
    env: dict[str, str]
    disk: Path
    fill: Callable[[Path], None]
    take_finals: Callable[[], None]


@contextlib.contextmanager
def site_of(case: MadeCase, lab: Host, place: Path) -> Iterator[Site]:
    with contextlib.ExitStack() as stack:
        disk = place / "there"
        if case.slow == "disk":
            disk = stack.enter_context(slow_disk(made(place / "slow"), DISK_BYTES, int(DISK_BYTES_PER_S)))
        data = made(disk / "data")
        if case.origin == "file":
            yield plain_site(f"file:{data}", {}, data)
        elif case.origin == "sftp":
            server = stack.enter_context(running_sshd(made(place / "ssh"), data, where=lab))
            if case.slow == "shell":
                (server.directory / ".bashrc").write_text(f"sleep {SHELL_S:g}\n")
            config = place / "ssh_config"
            config.write_text(server.ssh_config_text("lab"))
            yield plain_site(f"sftp://lab{data}", {"STAGER_SSH_CONFIG": str(config)}, data)
        else:
            yield s3_site(stack.enter_context(running_s3(data, where=lab)), lab, data)


def made(directory: Path) -> Path:
    directory.mkdir(parents=True, mode=0o700)
    return directory


def plain_site(url: str, env: dict[str, str], data: Path) -> Site:
    """A directory, here or behind ssh."""

    def fill(source: Path) -> None:
        shutil.copytree(source, data, dirs_exist_ok=True)

    return Site(url, env, data, fill, lambda: shutil.rmtree(data / "finals", ignore_errors=True))


def s3_site(server: Any, lab: Host, data: Path) -> Site:
    """Filled from its own host: nothing of that passes the line."""
    env = server.credentials() | {"AWS_ENDPOINT_URL": server.endpoint, "AWS_EC2_METADATA_DISABLED": "true"}
    with lab.inside():
        server.make_bucket(BUCKET)

    def fill(source: Path) -> None:
        with lab.inside():
            client = server.client()
            for path in files_in(source):
                with path.open("rb") as body:
                    client.put_object(Bucket=BUCKET, Key=str(path.relative_to(source)), Body=body)

    def take_finals() -> None:
        with lab.inside():
            client = server.client()
            for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix="finals/"):
                for entry in page.get("Contents", ()):
                    client.delete_object(Bucket=BUCKET, Key=entry["Key"])

    return Site(f"s3://{BUCKET}", env, data, fill, take_finals)


def files_in(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def forget(directory: Path) -> None:
    """What the page cache holds of it, so that the disk is read again."""
    for path in files_in(directory):
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


class Played:
    """One case, run by run."""

    def __init__(self, case: MadeCase, scales: Scales, instance: Path, stager: Stager, here: Host, site: Site, account: Account) -> None:
        self.case, self.scales, self.instance, self.stager = case, scales, instance, stager
        self.here, self.site, self.account = here, site, account
        self.prices = stager.home.with_name("prices.yml")
        self.prices.write_text(PRICES)

    def call(self, what: str, *more: str | Path) -> Any:
        """`timeout` ends it where a run does not."""
        words = [what, self.instance, self.scales.bytes_scale, self.scales.time_scale, self.site.url, *more]
        argv = ["timeout", str(RUN_S_MAX), sys.executable, PROJECT / "benchmarks" / "replayed.py", *words]
        said = self.here.run(argv, env=self.stager.environment()).stdout
        return json.loads(said) if said else None

    def fill(self, place: Path) -> None:
        self.call("make", "--into", made(place))
        self.site.fill(place)
        shutil.rmtree(place)

    def predict(self) -> dict[str, Any]:
        return dict(self.call("predict", "--prices", self.prices))

    def run(self) -> tuple[dict[str, Any], float | None]:
        """What `stager report` tells of it, and which share of the machine others had. Afterwards all is as before."""
        forget(self.site.disk)
        with self.account.others() as others:
            run = self.call("run")["run"]
        told = dict(self.stager.json("report", run, "--prices", self.prices))
        self.stager.run("gc", "--cache")
        self.site.take_finals()
        return told, others.share


def played(case: MadeCase, key: str, path: Path, warm: int, tries: int, directory: str | None) -> MadeRow:
    """`warm`: runs before the judged one, the first among them; `tries`: of the judged one, while others take too much of the machine."""
    scales = scales_of(case, path)
    with own_place(directory) as place, own_account() as account, Network() as net:
        lab, here = net.host("lab", wan=Wan(case.rtt_ms / 1000, case.mbit) if case.mbit else None), net.host("node")
        with site_of(case, lab, place) as site:
            env = {"PATH": JOB_PATH, "STAGER_CAPACITY": str(scales.capacity_bytes)} | site.env
            stager = Stager(place / "s", place / "home", env=env, idle_exit_s=120, where=here)
            stager.environment()
            play = Played(case, scales, path, stager, here, site, account)
            try:
                play.fill(place / "inputs")
                return row_of(case, key, scales, play, warm, tries)
            finally:
                stager.end()


def row_of(case: MadeCase, key: str, scales: Scales, play: Played, warm: int, tries: int) -> MadeRow:
    """Of the tries the one counts in which others had least, whatever it took."""
    blind = play.predict()
    first, _ = play.run()
    first_s = figure(first, "makespan")["actual"]
    for _ in range(warm - 1):
        play.run()
    before = play.predict()
    judged = [play.run()]
    while len(judged) < tries and (judged[-1][1] or 0.0) > OTHERS_MOST:
        judged.append(play.run())
    told, others = min(judged, key=lambda each: each[1] or 0.0)
    time, wan, money = (figure(told, name) for name in ("makespan", "over the WAN", "cost in total"))
    return MadeRow(
        name=case.name,
        words=case.words,
        key=key,
        bound_s=scales.bound_s,
        first=range_of(blind["least_s"], blind["makespan_s"], blind["most_s"], first_s),
        unsaid=range_of(*(blind["unsaid"][name] for name in ("least_s", "makespan_s", "most_s")), first_s),
        predicted_s=before["makespan_s"],
        took_s=time["actual"],
        again_s=[figure(each, "makespan")["actual"] for each, _ in judged],
        predicted_bytes=before["wan_bytes"],
        moved_bytes=wan["actual"],
        predicted_money=before["money"],
        paid_money=money["actual"],
        others=others,
        causes=causes_of(told),
    )


def range_of(least_s: float, expected_s: float, most_s: float, took_s: float) -> dict[str, float]:
    return {"least_s": least_s, "expected_s": expected_s, "most_s": most_s, "took_s": took_s}


def figure(told: dict[str, Any], name: str) -> dict[str, Any]:
    return next(dict(line) for line in told["lines"] if line["name"] == name)


def causes_of(told: dict[str, Any]) -> list[str]:
    """Where the time went otherwise than it was predicted, the longest first."""
    shares = [share for share in told["time_spent"]["shares"] if share["more_s"] is not None]
    most = sorted(shares, key=lambda share: -abs(share["more_s"]))[:CAUSES_SHOWN]
    rows = [f"{' '.join(filter(None, (share['cause'], share['about'])))} {share['more_s']:+.2f} s" for share in most]
    largest = told["time_spent"]["largest"]
    return [*rows, *([largest["text"]] if largest else [])]


def print_made(rows: Sequence[MadeRow]) -> None:
    heads = ("bound", "predicted", "took", "off", "WAN off", "money off", "first run said", "took", "held", "unsaid", "held", "others")
    print(f"{'':<66}" + "".join(f"{head:>16}" for head in heads))
    for row in rows:
        first, unsaid = row.ranges
        cells = [f"{row.bound_s:.1f} s", f"{row.predicted_s:.2f} s", f"{row.took_s:.2f} s", f"{row.time_off:+.1%}", f"{row.bytes_off:+.2%}"]
        cells += [f"{row.money_off:+.1%}", f"{first.least_s:.1f}-{first.most_s:.0f} s", f"{first.took_s:.1f} s", yes(first.held)]
        cells += [f"{unsaid.least_s:.1f}-{unsaid.most_s:.0f} s", yes(unsaid.held), "" if row.others is None else f"{row.others:.0%}"]
        print(f"{f'{row.name} ({row.words})':<66}" + "".join(f"{cell:>16}" for cell in cells))
    for row in rows:
        print(f"  {row.name}: {'; '.join(row.causes)}")


def yes(held: bool) -> str:
    return "yes" if held else "NO"


def judged_made(rows: Sequence[MadeRow]) -> bool:
    off = sorted(abs(row.time_off) for row in rows)
    found = [
        ("makespan, median", statistics.median(off), MEDIAN),
        ("makespan, nine of ten", off[ceil(0.9 * len(off)) - 1], NINE_OF_TEN),
        ("makespan, worst", off[-1], WORST),
        ("WAN bytes, worst", max(abs(row.bytes_off) for row in rows), WAN_WORST),
        ("money, worst", max(abs(row.money_off) for row in rows), MONEY_WORST),
    ]
    for what, value, most in found:
        print(f"goal: {what} off by {value:.1%}, wanted within {most:.0%}: {verdict(value <= most)}")
    held = [sum(row.ranges[at].held for row in rows) / len(rows) for at in range(2)]
    for what, share in zip(("with declared jobs", "with nothing declared"), held, strict=True):
        print(f"goal: first run within what its plan said, {what}: {share:.0%}, wanted {HELD_LEAST:.0%}: {verdict(share >= HELD_LEAST)}")
    return all(value <= most for _, value, most in found) and min(held) >= HELD_LEAST
