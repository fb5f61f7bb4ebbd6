"""A workflow whose results are reused, and the bed that it runs in: `count` for each text, `total` of all counts, `shout` of the total.

May know: the program from outside. One rule: each job writes its name to a file when it runs, so that who did not run is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tests.testbed.stager import Stager

HOME = "here:out/"
COUNTED = """stager: 1
name: {name}
on_exists: replace
defaults: {{isolate: off}}
jobs:
  count:
    foreach: {{text: "here:texts/*.txt"}}
    run: echo {{text.stem}} >> "$RAN"; sh count.sh {{text}} > {{text.stem}}.count
    inputs: ["{{text}}", here:count.sh]
    outputs: {counts}
    env_pass: [RAN]
  total:
    run: echo total >> "$RAN"; sh total.sh *.count > total.txt
    inputs: ["*.count", here:total.sh]
    outputs: {total}
    env_pass: [RAN]
  shout:
    run: echo shout >> "$RAN"; {shout} > shout.txt
    inputs: [{shouts_of}]
    outputs: {{shout.txt: "here:out/"}}
    env_pass: [RAN]
"""


def counted(name: str, shout: str, shouts_of: str, *, hands_over_all: bool) -> str:
    """Or what `shout` made alone."""
    counts, total = '"{text.stem}.count"', "total.txt"
    if hands_over_all:
        told = {"counts": f'{{{counts}: "{HOME}"}}', "total": f'{{{total}: "{HOME}"}}'}
    else:
        told = {"counts": f"[{counts}]", "total": f"[{total}]"}
    return COUNTED.format(name=name, shout=shout, shouts_of=shouts_of, **told)


class ReuseBed:
    """`texts`: what is to be counted, by name. `scripts`: of jobs, by name."""

    def __init__(self, place: Path, workflow: str, texts: Mapping[str, str], scripts: Mapping[str, str]) -> None:
        self.place = place
        self.stager = Stager(place / "s", place / "home", env={"RAN": str(place / "ran"), "STAGER_REUSE": "on"})
        (place / "texts").mkdir()
        for name, text in texts.items():
            (place / "texts" / f"{name}.txt").write_text(text)
        for name, script in scripts.items():
            (place / f"{name}.sh").write_text(script)
        (place / "w.yml").write_text(workflow)

    def submit(self, workflow: str = "w.yml", *words: str, code: int = 0) -> str:
        """What was said."""
        (self.place / "ran").unlink(missing_ok=True)
        return self.stager.run("submit", workflow, "--quiet", *words, cwd=self.place, code=code).stderr

    def ran(self) -> list[str]:
        """The jobs that ran since the last submit."""
        return sorted((self.place / "ran").read_text().split()) if (self.place / "ran").exists() else []
