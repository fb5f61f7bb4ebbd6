"""`cargo test` with several test programs at once: they wait for disks, servers and clocks far more than they compute.

Cargo builds them and says where they are; each runs in the directory of its package, as cargo would run it. What a program printed is
shown when it failed, and every line that says that something was not run. Examples in comments are not run: there are none.
The one rule: one program that fails, or that cannot be built, fails all of it, and the others run all the same.
Again: `make rust`, or `python scripts/cargo_tests.py -j 4 -- -p stager-node --test chain`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

# Never the release: to build its tests takes four times as long, and they wait for disks and clocks rather than compute.
PROFILE = ("--profile", "quick", "--no-default-features")
BUILD = ("cargo", "test", "--locked", *PROFILE, "--no-run", "--no-fail-fast", "--message-format", "json-render-diagnostics")
# A hung program is told by name rather than by the end of all.
DEADLINE_S = 900.0
NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Program:
    name: str
    path: Path
    package: Path


@dataclass(frozen=True)
class Outcome:
    program: Program
    code: int | None
    said: str
    took_s: float

    @property
    def line(self) -> str:
        results = [line.removeprefix("test result: ") for line in self.said.splitlines() if line.startswith("test result: ")]
        end = "did not end" if self.code is None else results[-1] if results else f"exit code {self.code}"
        return f"{self.took_s:6.1f} s  {self.program.name}: {end}"


def built(words: list[str]) -> tuple[list[Program], bool]:
    """And whether all of it could be built. Cargo shows what the compiler says by itself."""
    done = subprocess.run([*BUILD, *words], stdout=subprocess.PIPE, text=True)
    programs = []
    for line in done.stdout.splitlines():
        found = json.loads(line)
        if found.get("reason") == "compiler-artifact" and found["profile"]["test"] and found.get("executable"):
            package = Path(found["manifest_path"]).parent
            programs.append(Program(f"{package.name}/{found['target']['name']}", Path(found["executable"]), package))
    return programs, done.returncode == 0


def run(program: Program, words: list[str]) -> Outcome:
    began = time.monotonic()
    # The same cases are drawn each time, so that what fails fails by what was changed: `make draw` looks at others.
    drawn = os.environ.get("STAGER_DRAW", "0")
    environment = os.environ | {"CARGO_MANIFEST_DIR": str(program.package), "PROPTEST_RNG_SEED": drawn}
    try:
        done = subprocess.run(
            [program.path, *words],
            cwd=program.package,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=DEADLINE_S,
        )
        code, said = done.returncode, done.stdout
    except subprocess.TimeoutExpired as problem:
        code, said = None, problem.stdout or b""
    return Outcome(program, code, said.decode(errors="replace"), time.monotonic() - began)


def tell(outcome: Outcome) -> None:
    for line in outcome.said.splitlines():
        if NOT_RUN in line and outcome.code == 0:
            print(line)
    if outcome.code != 0:
        print(f"---- {outcome.program.name}\n{outcome.said}\n----")
    print(outcome.line, flush=True)


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-j", "--at-once", type=int, default=4)
    parser.add_argument("--only", default="", help="of the tests in them, those whose names hold this")
    parser.add_argument("cargo", nargs="*", default=["--workspace"], help="what is built; everything if left out")
    given = parser.parse_args(argv)
    programs, complete = built(given.cargo)
    failed = []
    with ThreadPoolExecutor(max(1, given.at_once)) as pool:
        # The last packages have the programs that take longest.
        running = [pool.submit(run, program, [given.only] if given.only else []) for program in reversed(programs)]
        for each in as_completed(running):
            tell(each.result())
            if each.result().code != 0:
                failed.append(each.result().program.name)
    if not complete:
        print("FAILED: not all tests of cargo could be built, see above")
    if failed:
        print(f"FAILED: {', '.join(sorted(failed))}")
    return 0 if complete and programs and not failed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
