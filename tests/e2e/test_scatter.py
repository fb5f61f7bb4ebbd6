"""Jobs that are decided at run time, by real processes: a list and a directory that a job made, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

WORKFLOW = """stager: 1
name: parts
on_exists: replace
defaults: {isolate: off, retries: 0}
jobs:
  split:
    run: echo split >> "$RAN"; sh split.sh
    inputs: [here:split.sh]
    outputs: [names.txt, chunks/]
    env_pass: [RAN]
  part:
    scatter: {over: names.txt, as: name}
    run: echo {name} >> "$RAN"; sh part.sh {name} > {name}.part
    inputs: [here:part.sh, chunks/]
    outputs: ["{name}.part"]
    env_pass: [RAN]
  show:
    scatter: {over: chunks/, as: chunk, expect: 2}
    run: cat {chunk} > {chunk.name}.shown
    inputs: [chunks/]
    outputs: {"{chunk.name}.shown": "here:shown/"}
  gather:
    run: shopt -s nullglob; cat *.part /dev/null | sort > all.txt
    inputs: ["*.part"]
    outputs: {all.txt: "here:out/"}
"""
WITHIN = """stager: 1
name: within
on_exists: replace
defaults: {isolate: off, retries: 2, env_pass: [RAN]}
jobs:
  top: {run: 'echo top >> "$RAN"; cat given > names.txt', inputs: [here:given], outputs: [names.txt]}
  mid:
    scatter: {over: names.txt, as: name}
    run: echo {name} >> "$RAN"; seq -f %02g {name} > {name}.list
    outputs: ["{name}.list"]
  low:
    foreach: {list: "*.list"}
    scatter: {over: "{list}", as: number}
    run: echo {list.stem}.{number} >> "$RAN"; echo {list.stem}.{number} > {list.stem}.{number}.low
    outputs: ["{list.stem}.{number}.low"]
  each:
    foreach: {list: "*.list"}
    run: shopt -s nullglob; cat {list.stem}.*.low /dev/null > {list.stem}.all
    inputs: ["{list.stem}.*.low"]
    outputs: ["{list.stem}.all"]
  gather: {run: cat *.all /dev/null | sort > all.txt, inputs: ["*.all"], outputs: {all.txt: "here:out/"}}
"""
LOOP = 'while read -r n; do [ -z "$n" ] || { echo "$n" >> names.txt; echo "$n" > "chunks/$n.chunk"; }; done < given\nrm given\n'


class Bed:
    def __init__(self, place: Path, *, reuse: str = "off") -> None:
        self.place = place
        self.stager = Stager(place / "s", place / "home", env={"RAN": str(place / "ran"), "STAGER_REUSE": reuse})
        (place / "w.yml").write_text(WORKFLOW)
        (place / "part.sh").write_text('cat "chunks/$1.chunk"\n')

    def names(self, *names: str) -> None:
        text = "\n".join(names)
        (self.place / "split.sh").write_text(f"mkdir chunks; : > names.txt\ncat > given <<'E'\n{text}\nE\n" + LOOP)

    def submit(self, *words: str, code: int = 0) -> str:
        (self.place / "ran").unlink(missing_ok=True)
        return self.stager.run("submit", "w.yml", "--quiet", *words, cwd=self.place, code=code).stderr

    def ran(self) -> list[str]:
        return sorted((self.place / "ran").read_text().split()) if (self.place / "ran").exists() else []

    def jobs(self, run: str) -> dict[str, str]:
        return {job["job"]: job["state"] for job in self.stager.json("jobs", run)}

    def made(self) -> list[str]:
        return (self.place / "out/all.txt").read_text().split()


@pytest.fixture
def bed(short_dir: Path) -> Iterator[Bed]:
    made = Bed(short_dir)
    yield made
    made.stager.end()


def test_a_job_for_each_member_and_one_that_gathers_them(bed: Bed) -> None:
    bed.names("b", "a", "c")
    plan = bed.stager.run("plan", "w.yml", cwd=bed.place).stdout
    assert "jobs.part: 1 job is assumed; how many there are is known when job 'split' has made 'names.txt'" in plan
    assert "jobs.show: 2 jobs are assumed" in plan
    bed.submit()
    assert bed.made() == ["a", "b", "c"] and bed.ran() == ["a", "b", "c", "split"]
    assert sorted(path.name for path in (bed.place / "shown").iterdir()) == ["a.chunk.shown", "b.chunk.shown", "c.chunk.shown"]
    run = "parts-1"
    jobs = bed.jobs(run)
    parts = [f"part[{name}]" for name in "bac"]
    assert sorted(jobs) == sorted(["split", "gather", *parts, *(f"show[chunks/{name}.chunk]" for name in "abc")])
    assert set(jobs.values()) == {"done"}
    assert "job part scatters over 3 members" in bed.stager.run("explain", run, "--job", "part[a]").stdout
    ledger = bed.stager.run("ledger", run).stdout
    assert "c.part" in ledger and "1.part" not in ledger
    assert "part" in bed.stager.run("report", run).stdout
    assert bed.stager.json("runs")[0]["jobs_total"] == 8


def test_no_members_are_legal_and_a_bad_list_is_mended_and_resumed(bed: Bed) -> None:
    bed.names()
    bed.submit()
    assert bed.made() == [] and bed.ran() == ["split"]
    bed.names("a", "b", "a")
    said = bed.submit(code=1)
    assert "job 'split' made 'names.txt', over which 'part' scatters, and that cannot be: line 3 repeats 'a' of line 1" in said
    assert {state for job, state in bed.jobs("parts-2").items() if job != "split"} == {"skipped"}
    bed.names("a", "b/../../x")
    assert "leads out of a sandbox" in bed.stager.run("resume", "--quiet", cwd=bed.place, code=1).stderr
    bed.names("a", "b")
    bed.stager.run("resume", "--quiet", cwd=bed.place)
    assert bed.made() == ["a", "b"]


def test_members_of_which_no_jobs_can_be_made_say_so_and_a_mended_file_goes_on(bed: Bed) -> None:
    bed.names("a", "b")
    (bed.place / "w.yml").write_text(WORKFLOW.replace("{name}.part", "same.part"))
    said = bed.submit(code=1)
    assert "no jobs can be made of the 2 members in 'names.txt', over which 'part' scatters" in said and "two producers" in said
    assert bed.ran() == ["split"]
    (bed.place / "w.yml").write_text(WORKFLOW)
    bed.stager.run("resume", "--quiet", cwd=bed.place)
    assert bed.made() == ["a", "b"] and bed.ran() == ["a", "b", "split"]


def test_a_member_that_failed_is_mended_and_the_others_stand(bed: Bed) -> None:
    bed.names("a", "b", "c")
    (bed.place / "part.sh").write_text('test "$1" != b && cat "chunks/$1.chunk"\n')
    bed.submit(code=1)
    assert bed.ran() == ["a", "b", "c", "split"]
    (bed.place / "part.sh").write_text('cat "chunks/$1.chunk"\n')
    done = bed.stager.run("resume", "--quiet", cwd=bed.place)
    assert "job 'part[b]' takes it as it is now" in done.stderr
    assert bed.made() == ["a", "b", "c"] and bed.ran() == ["a", "b", "b", "c", "split"]


def test_a_scheduler_that_is_killed_makes_each_job_once(bed: Bed) -> None:
    """Killed when the list was just told, and again while the members run."""
    names = [f"m{number:03d}" for number in range(200)]
    bed.names(*names)
    (bed.place / "w.yml").write_text(WORKFLOW.replace("retries: 0", "retries: 2"))
    run = bed.stager.submit(bed.place / "w.yml")
    for jobs in (1, 3):
        wait_until(lambda jobs=jobs: len(bed.ran()) >= jobs, f"{jobs} jobs that have begun")
        pid = bed.stager.scheduler_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        # Its variables are not known to the next scheduler.
        bed.stager.run("resume", run, "--detach")
    bed.stager.run("wait", run)
    assert bed.made() == names
    ran = [name for name in bed.ran() if name != "split"]
    assert len(set(ran)) == 200 and len(ran) <= 202 + 2


MANY = """stager: 1
name: many
on_exists: replace
defaults: {isolate: off, retries: 0, env_pass: [RAN]}
files: {raw: "here:raw/*.txt"}
jobs:
  list: {run: 'echo list >> "$RAN"; sh list.sh > names.txt', inputs: [here:list.sh], outputs: [names.txt]}
  part:
    scatter: {over: names.txt, as: name, expect: 3}
    run: echo {name} >> "$RAN"; tr a-z A-Z < raw/{name}.txt > {name}.part
    inputs: ["raw/{name}.txt"]
    outputs: ["{name}.part"]
  turn:
    foreach: {part: "*.part"}
    run: echo turn-{part.stem} >> "$RAN"; rev {part} > {part.stem}.turn
    inputs: ["{part}"]
    outputs: ["{part.stem}.turn"]
  gather: {run: 'echo gather >> "$RAN"; cat *.turn > all.txt', inputs: ["*.turn"], outputs: {all.txt: "here:out/"}}
"""


def test_a_scattered_run_that_is_submitted_again_runs_what_changed(short_dir: Path) -> None:
    """Whether the list is known from the start, or was made again and names the same."""
    bed = Bed(short_dir, reuse="on")
    try:
        (bed.place / "w.yml").write_text(MANY)
        (bed.place / "raw").mkdir()
        names = [f"m{number}" for number in range(6)]
        for name in [*names, "new"]:
            (bed.place / "raw" / f"{name}.txt").write_text(f"{name}\n")

        def listing(*names: str, text: str = "") -> None:
            (bed.place / "list.sh").write_text(f"{text}\nprintf '%s\\n' {' '.join(names)}\n")

        def follows(*names: str) -> list[str]:
            return sorted([*names, *(f"turn-{name}" for name in names), "gather"])

        listing(*names)
        bed.submit()
        assert bed.ran() == sorted([*follows(*names), "list"])
        assert "14 of 14 jobs reused" in bed.submit() and bed.ran() == []
        (bed.place / "raw/m2.txt").write_text("other\n")
        bed.submit()
        assert bed.ran() == follows("m2") and "REHTO" in bed.made()
        listing(*names, text="# a comment")
        bed.submit()
        assert bed.ran() == ["list"], "it named the same, so all that follows stands"
        listing(*names[:-1], "new")
        bed.submit()
        assert bed.ran() == sorted([*follows("new"), "list"]) and "WEN" in bed.made() and "5M" not in bed.made()
        assert set(bed.jobs("many-5").values()) == {"done"}
    finally:
        bed.stager.end()


UNREAD = """stager: 1
name: unread
on_exists: replace
defaults: {isolate: off, retries: 0, env_pass: [RAN]}
jobs:
  list: {run: cat given > names.txt, inputs: [here:given], outputs: [names.txt]}
  part:
    scatter: {over: names.txt, as: name}
    run: echo {name} >> "$RAN"; echo {name} > {name}.part
    outputs: ["{name}.part"]
  turn:
    foreach: {part: "*.part"}
    run: echo turn-{part.stem} >> "$RAN"; echo {part} > {part.stem}.turn
    outputs: ["{part.stem}.turn"]
  gather: {run: cat *.turn > all.txt, inputs: ["*.turn"], outputs: {all.txt: "here:out/"}}
"""


def test_nothing_runs_for_a_member_that_is_only_assumed(short_dir: Path) -> None:
    """Also what reads nothing of it, and what an earlier run made of one that is not there any more."""
    bed = Bed(short_dir, reuse="on")
    try:
        (bed.place / "w.yml").write_text(UNREAD)
        (bed.place / "given").write_text("a\nb\n")
        bed.submit()
        assert bed.ran() == ["a", "b", "turn-a", "turn-b"] and bed.made() == ["a.part", "b.part"]
        (bed.place / "given").write_text("a\nc\n")
        bed.submit()
        assert bed.made() == ["a.part", "c.part"] and "c" in bed.ran() and not {"a", "b", "1", "turn-b", "turn-1"} & set(bed.ran())
    finally:
        bed.stager.end()


def members_within(*names: int) -> list[str]:
    return sorted(f"{name}.{number:02d}" for name in names for number in range(1, name + 1))


def test_members_name_members_of_their_own(bed: Bed) -> None:
    (bed.place / "w.yml").write_text(WITHIN)
    (bed.place / "given").write_text("3\n0\n2\n")
    plan = bed.stager.run("plan", "w.yml", cwd=bed.place).stdout
    assert "jobs.low: 1 job is assumed; how many there are is known when job 'mid[1]' has made '1.list'" in plan
    bed.submit()
    assert bed.made() == members_within(3, 2) and bed.ran() == sorted(["top", "3", "0", "2", *members_within(3, 2)])
    jobs = bed.jobs("within-1")
    lows = [f"low[3.list,{number:02d}]" for number in (1, 2, 3)] + ["low[2.list,01]", "low[2.list,02]"]
    assert sorted(jobs) == sorted(["top", "gather", *(f"mid[{n}]" for n in "302"), *lows, *(f"each[{n}.list]" for n in "302")])
    assert set(jobs.values()) == {"done"}
    assert "job low scatters over" in bed.stager.run("explain", "within-1", "--job", "low[2.list,01]").stdout


def test_a_scheduler_that_is_killed_while_members_name_members_makes_each_job_once(bed: Bed) -> None:
    """Killed when the first list was just told, when the first of theirs were, and among their members."""
    (bed.place / "w.yml").write_text(WITHIN)
    names = list(range(1, 15))
    (bed.place / "given").write_text("\n".join(map(str, names)))
    run = bed.stager.submit(bed.place / "w.yml")
    for jobs in (1, 2, 8, 30, 60):
        wait_until(lambda jobs=jobs: len(bed.ran()) >= jobs, f"{jobs} jobs that have begun")
        pid = bed.stager.scheduler_pid()
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        # Its variables are not known to the next scheduler.
        bed.stager.run("resume", run, "--detach")
    bed.stager.run("wait", run)
    assert bed.made() == members_within(*names)
    wanted = {"top", *map(str, names), *members_within(*names)}
    assert set(bed.ran()) == wanted and len(bed.ran()) <= len(wanted) + 2 * 5


def test_what_did_not_change_is_reused_with_its_members(short_dir: Path) -> None:
    """An edit of what makes a member runs the members and what follows; one of the list runs what is new."""
    bed = Bed(short_dir, reuse="on")
    try:
        text = WORKFLOW.replace("outputs: [names.txt, chunks/]", 'outputs: {names.txt: "here:out/", given: "here:out/"}')
        text = text.replace("chunks/]", "given]").split("  show:")[0] + "  gather:" + text.split("  gather:")[1]
        text = text.replace('outputs: ["{name}.part"]', 'outputs: {"{name}.part": "here:out/"}')
        (bed.place / "w.yml").write_text(text)
        (bed.place / "part.sh").write_text('grep "^$1$" given\n')
        bed.names("a", "b", "c")
        split = (bed.place / "split.sh").read_text().replace("rm given\n", "")
        (bed.place / "split.sh").write_text(split)
        bed.submit()
        assert bed.ran() == ["a", "b", "c", "split"]
        assert "5 of 5 jobs reused" in bed.submit() and bed.ran() == []
        assert "jobs.part:" not in bed.stager.run("plan", "w.yml", cwd=bed.place).stdout
        (bed.place / "part.sh").write_text('grep "^$1$" given | tr a-z A-Z\n')
        assert "1 of 5 jobs reused" in bed.submit() and bed.ran() == ["a", "b", "c"]
        assert bed.made() == ["A", "B", "C"]
        (bed.place / "split.sh").write_text(split.replace("\nc\n", "\nd\n"))
        assert "jobs.part: 3 jobs are assumed" in bed.stager.run("plan", "w.yml", cwd=bed.place).stdout
        bed.submit()
        assert bed.made() == ["A", "B", "D"]
    finally:
        bed.stager.end()


RELISTED = """stager: 1
name: relisted
on_exists: replace
defaults: {isolate: off, retries: 0, env_pass: [RAN]}
jobs:
  list: {run: 'echo list >> "$RAN"; cat {UNDECLARED} > names.txt', outputs: {names.txt: "here:out/"}}
"""
RELISTED_PARTS = """  part:
    scatter: {over: names.txt, as: name}
    run: echo {name} >> "$RAN"; echo {name} > {name}.part
    outputs: ["{name}.part"]
  gather: {run: cat *.part > all.txt, inputs: ["*.part"], outputs: {all.txt: "here:out/"}}
"""


def test_members_are_those_of_the_list_that_stands_and_not_of_an_older_making(short_dir: Path) -> None:
    """The same job made another list in a run that scattered over nothing."""
    bed = Bed(short_dir, reuse="on")
    try:
        alone = RELISTED.replace("{UNDECLARED}", str(bed.place / "given"))
        (bed.place / "w.yml").write_text(alone + RELISTED_PARTS)
        (bed.place / "given").write_text("a\nb\n")
        bed.submit()
        assert bed.made() == ["a", "b"]
        (bed.place / "given").write_text("x\ny\n")
        (bed.place / "w.yml").write_text(alone)
        bed.submit("--rerun", "list")
        (bed.place / "w.yml").write_text(alone + RELISTED_PARTS)
        bed.submit()
        assert (bed.place / "out/names.txt").read_text() == "x\ny\n" and bed.made() == ["x", "y"]
    finally:
        bed.stager.end()


def test_a_run_that_scatters_begins_with_what_was_named_and_a_member_runs_by_its_name(short_dir: Path) -> None:
    bed = Bed(short_dir, reuse="on")
    try:
        (bed.place / "w.yml").write_text(MANY)
        (bed.place / "raw").mkdir()
        for name in "abc":
            (bed.place / "raw" / f"{name}.txt").write_text(f"{name}\n")
        (bed.place / "list.sh").write_text("printf '%s\\n' a b c\n")
        bed.submit()
        bed.submit("--from", "gather")
        assert bed.ran() == ["gather"]
        bed.submit("--rerun", "part[b]")
        assert bed.ran() == ["b"]
        bed.submit("--from", "part[b]")
        assert bed.ran() == ["b", "gather", "turn-b"]
        assert "--rerun 'part[d]' names no job" in bed.submit("--rerun", "part[d]", code=2)
        (bed.place / "list.sh").write_text("# an edit\nprintf '%s\\n' a b c\n")
        assert "job 'list'" in bed.submit("--from", "gather", code=3) and bed.ran() == []
    finally:
        bed.stager.end()
