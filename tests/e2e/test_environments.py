"""Jobs with Python packages of a lock file, by real processes: made once whatever is killed, used by all, kept up to a limit."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.worker.place import TOLD
from tests.e2e.made_bed import GATE, PackagesBed
from tests.testbed.waiting import wait_until
from tests.testbed.wheels import locked, wheel

pytestmark = pytest.mark.xdist_group("environments")
MODULE = 'import sys\n\ndef main():\n    print("{version}", sys.prefix)\n'


class Bed(PackagesBed):
    def __init__(self, place: Path) -> None:
        self.wheels = [wheel(place / "wheels", "probe", version, MODULE.format(version=version)) for version in ("1.0", "2.0")]
        super().__init__(place, "venv", {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(place / "wheels"), "PIP_LOG": str(place / "pip.log")})

    def installed(self) -> int:
        """How often pip was asked to the end."""
        log = self.place / "pip.log"
        return log.read_text().count("Successfully installed") if log.exists() else 0

    def made_of(self, name: str) -> Path:
        """The environment of a package of this name alone."""
        text = locked(wheel(self.place / "wheels", name, "1.0", MODULE.format(version=name)))
        return Path(self.said(self.lock(f"{name}.lock", text))["root_dir"])


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    place = session_dir / "environments"
    place.mkdir()
    made = Bed(place)
    yield made
    made.stager.end()


USE = """
jobs:
  program: {run: "probe > program.txt; env > env.txt", venv: here:own.lock, outputs: {program.txt: "here:out/", env.txt: "here:out/"}}
  module: {run: [python3, -c, "import probe; probe.main()"], venv: here:own.lock, stdout: module.txt, outputs: {module.txt: "here:out/"}}
  shell: {run: "import probe as p; p.main()", shell: [python3, -c], venv: here:own.lock, stdout: s.txt, outputs: {s.txt: "here:out/"}}
  write:
    run: 'for place in "$VIRTUAL_ENV" "$VIRTUAL_ENV/bin"; do touch "$place/new" 2>&1 || true; done; ls "$VIRTUAL_ENV/new" 2>&1 || true'
    venv: here:own.lock
    stdout: write.txt
    outputs: {write.txt: "here:out/"}
  host: {run: "if command -v probe; then exit 9; fi; echo ${VIRTUAL_ENV:-none} > host.txt", outputs: {host.txt: "here:out/"}}
"""


def test_all_jobs_of_a_lock_file_have_one_environment_and_an_edit_runs_exactly_these_again(bed: Bed) -> None:
    (bed.place / "own.lock").write_text(locked(bed.wheels[0]))
    bed.submitted("use", USE, "--reuse")
    (root,) = bed.made()
    assert bed.out("program.txt") == bed.out("module.txt") == bed.out("s.txt") == f"1.0 {root}\n" and bed.installed() == 1
    env = dict(line.split("=", 1) for line in bed.out("env.txt").splitlines())
    assert env["VIRTUAL_ENV"] == str(root) and env["PATH"] == f"{root}/bin:/usr/local/bin:/usr/bin:/bin"
    assert bed.out("write.txt").count("Read-only file system") + bed.out("write.txt").count("Permission denied") == 2
    assert bed.out("host.txt") == "none\n" and not (root / "new").exists()
    assert "5 of 5 jobs reused" in bed.submitted("use", USE, "--reuse")

    (bed.place / "own.lock").write_text(locked(bed.wheels[1]))
    explained = bed.stager.run("plan", "use.yml", "--reuse", "--explain", "module", cwd=bed.place)
    assert re.search(r"venv: \S+ before, \S+ now", explained.stdout + explained.stderr)
    assert "1 of 5 jobs reused" in bed.submitted("use", USE, "--reuse")
    assert bed.out("program.txt").startswith("2.0 ") and len(bed.made()) == 2 and bed.installed() == 2
    again = bed.submitted("more", 'jobs: {a: {run: "probe > a.txt", venv: here:own.lock, outputs: {a.txt: "here:out/"}}}\n')
    assert "1 of 1 done" in again and bed.installed() == 2, "a later run uses what is there"


FAIL = """
defaults: {retries: 0}
jobs:
  code: {run: "exit 7", venv: here:own.lock}
  options: {run: "true", venv: here:options.lock}
  digest: {run: "true", venv: here:digest.lock}
  needs: {run: "true", venv: here:needs.lock}
"""


def test_what_cannot_be_made_is_told_by_name_and_leaves_nothing(bed: Bed) -> None:
    needing = wheel(bed.place / "wheels", "needing", "1.0", "x = 1\n", needs="probe>=1")
    good = locked(bed.wheels[0])
    (bed.place / "own.lock").write_text(good)
    bed.maker(bed.place / "own.lock").wait()
    (bed.place / "options.lock").write_text(f"--extra-index-url https://me:hunter2@h/simple\n{good}")
    (bed.place / "digest.lock").write_text(re.sub(r"sha256:\w{8}", "sha256:00000000", good))
    (bed.place / "needs.lock").write_text(locked(needing))
    before = bed.made()
    told = bed.submitted("fail", FAIL, code=1)
    faults = {job["job"]: str(job) for job in bed.stager.json("jobs", "fail")}
    for job, words in {
        "options": "has no environment to run in: its lock file cannot be used: line 1 has the option --extra-index-url",
        "digest": "a package has another digest than its lock file says",
        "needs": "--require-hashes mode",
    }.items():
        assert words in faults[job].replace("\\", ""), faults[job]
    assert "hunter2" not in told + str(faults)
    shell = bed.stager.run("shell", "fail", "code", "--", "probe", cwd=bed.place)
    assert shell.stdout.startswith("1.0 "), "a shell in its sandbox has its packages"
    assert bed.made() == before
    (bed.place / "away.lock").write_text(locked(bed.wheels[1]) + locked(needing))
    fault = bed.said(bed.place / "away.lock", PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL="http://127.0.0.1:9/simple")["fault"]
    assert (fault["error_class"], fault["code"]) == ("transient", "index_away") and bed.made() == before


def test_one_is_made_once_whatever_is_killed_and_none_counts_that_was_not_made_to_its_end(bed: Bed) -> None:
    lock = bed.place / "killed.lock"
    lock.write_text(locked(wheel(bed.place / "wheels", "killed", "1.0", MODULE.format(version="k"))))
    before, made = set(bed.made()), bed.installed()
    first = bed.maker(lock)
    wait_until(lambda: any((path / "bin").is_dir() for path in set(bed.made()) - before), "an environment to be begun")
    first.send_signal(signal.SIGKILL)
    first.communicate()
    (half,) = set(bed.made()) - before
    assert not (half / TOLD).exists()
    # What it started may go on for a moment, and counts for nothing.
    both = [bed.maker(lock), bed.maker(lock)]
    said = [json.loads(each.communicate()[0]) for each in both]
    assert said == [{"root_dir": str(half)}] * 2 and (half / TOLD).exists() and bed.installed() - made in (1, 2)
    assert subprocess.run([half / "bin/killed"], capture_output=True, text=True, check=True).stdout == f"k {half}\n"


def test_gc_removes_what_was_changed_and_what_no_run_needs_and_nothing_else(bed: Bed) -> None:
    root = bed.made_of("gone")
    assert bed.stager.json("gc")["environments"] == 0
    note = bed.place / "s" / "attempts" / "of-a-test" / "environment.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"root_dir": str(root)}))
    (module,) = root.glob("lib/python*/site-packages/gone.py")
    module.chmod(0o600)
    module.write_text(module.read_text() + "# changed\n")
    assert bed.stager.json("gc")["environments"] == 0, "an attempt uses it"
    (note.parent / "outcome.json").write_text("{}")
    told = bed.stager.run("gc", "--dry-run").stdout
    assert "1 environment of packages" in told and root.exists()
    bed.stager.run("gc")
    assert not root.exists()
    bed.submitted("long", JOB % (GATE, "own"), "--detach")
    sandbox = bed.begun()
    count = len(bed.made())
    told = bed.stager.json("gc", "--cache")
    assert told["environments"] == count - len(bed.made()) and told["made_bytes"] > 1_000_000
    # A sandbox that is kept of a failed job keeps its own.
    used = json.loads((sandbox.parent / "environment.json").read_text())["root_dir"]
    assert Path(used) in bed.made() and len(bed.made()) <= 2
    (sandbox / "go").touch()
    bed.stager.run("wait", "long")


JOB = 'jobs: {a: {run: "%s", venv: "here:%s.lock"}}\n'


def test_environments_that_no_job_uses_give_way_to_others(short_dir: Path) -> None:
    """One that a job runs in stays, whatever the limit."""
    bed = Bed(short_dir)
    bed.stager.env["STAGER_KEEP_ENVIRONMENTS"] = "1 kB"
    try:
        one, two = bed.made_of("one"), bed.made_of("two")
        bed.submitted("first", JOB % (GATE, "one"), "--detach")
        sandbox = bed.begun()
        assert bed.made_at_rest() == [one], "the other one went when this was made"
        bed.submitted("second", JOB % ("two", "two"))
        assert set(bed.made_at_rest()) == {one, two}
        (sandbox / "go").touch()
        bed.stager.run("wait", "first")
        bed.made_at_rest()
        (short_dir / "three.lock").write_text(locked(wheel(short_dir / "wheels", "three", "1.0", MODULE.format(version="3"))))
        bed.submitted("third", JOB % ("three", "three"))
        [three] = bed.made_at_rest()
        assert three not in (one, two), "both went"
        bed.submitted("fourth", JOB % ("one", "one"))
        assert bed.made_at_rest() == [one], "made once more"
    finally:
        bed.stager.end()


def test_neither_modules_nor_settings_of_others_change_what_is_made(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the scheduler was started may lie a `venv.py`; and a user may have his own packages put elsewhere."""
    odd = bed.place / "odd"
    odd.mkdir()
    (odd / "venv.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(odd)
    for number, setting in enumerate(("user = true", f"target = {odd}/elsewhere")):
        conf = odd / f"pip{number}.conf"
        conf.write_text(f"[install]\n{setting}\n")
        lock = bed.lock(f"odd{number}.lock", locked(wheel(bed.place / "wheels", f"odd{number}", "1.0", MODULE.format(version="o"))))
        said = bed.said(lock, PIP_CONFIG_FILE=str(conf))
        assert "fault" not in said, said
        assert Path(said["root_dir"], f"bin/odd{number}").exists() and not (odd / "elsewhere").exists()
