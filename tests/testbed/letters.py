"""A small workflow whose every final is known beforehand: each input is read twice, summed up in between, and joined at the end.

May know: the native format. One rule: a job leaves one line in a log outside its sandbox per time it ran to the end, so that nothing can
run twice unseen.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

TEMPLATE = """\
stager: 1
name: letters
defaults: {{isolate: off}}
origins:
  data: {origin}
jobs:
  digest:
    foreach: {{n: {numbers}}}
    run: |
      echo begin {{n}} >> "$TRACE"
      sleep {pause}
      (sha256sum < "in/{{n}}.txt"; cat "in/{{n}}.txt") > "mid/{{n}}.txt"
      echo digest {{n}} >> "$TRACE"
    env: {{TRACE: "{trace}"}}
    inputs: ["data:in/{{n}}.txt"]
    outputs: ["mid/{{n}}.txt"]
  stamp:
    foreach: {{n: {numbers}}}
    run: |
      sleep {pause}
      (echo "letter {{n}}"; cat "mid/{{n}}.txt") > "out/{{n}}.txt"
      echo stamp {{n}} >> "$TRACE"
    env: {{TRACE: "{trace}"}}
    inputs: ["mid/{{n}}.txt"]
    outputs: {{"out/{{n}}.txt": "data:out/{{n}}.txt"}}
  join:
    run: |
      sleep {pause}
      cat mid/*.txt > all.txt
      echo join 0 >> "$TRACE"
    env: {{TRACE: "{trace}"}}
    inputs: ["mid/*.txt"]
    outputs: {{all.txt: data:all.txt}}
"""


@dataclass
class Letters:
    """`size_bytes` of each of `count` inputs; `pause_s` of each job."""

    directory: Path
    count: int = 4
    size_bytes: int = 1_000_000
    pause_s: float = 0.3

    @property
    def workflow(self) -> Path:
        return self.directory / "workflow.yml"

    @property
    def trace(self) -> Path:
        return self.directory / "trace.log"

    def content(self, number: int) -> bytes:
        seed = hashlib.sha256(f"letter {number}".encode()).hexdigest().encode()
        return (seed * (self.size_bytes // len(seed) + 1))[: self.size_bytes]

    def make(self, data: Path, origin: str) -> None:
        """Inputs below `data`, which is what `origin` (an entry of `origins:`) names."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (data / "in").mkdir(parents=True, exist_ok=True)
        for number in range(self.count):
            (data / "in" / f"{number}.txt").write_bytes(self.content(number))
        numbers = "[" + ", ".join(str(number) for number in range(self.count)) + "]"
        self.workflow.write_text(TEMPLATE.format(origin=origin, numbers=numbers, pause=f"{self.pause_s:g}", trace=self.trace))

    def hold(self, jobs: str) -> Path:
        """Jobs of this type wait for the file that is returned, instead of for a time."""
        gate = self.directory / f"go-{jobs}"
        before, name, after = self.workflow.read_text().partition(f"  {jobs}:\n")
        held = after.replace(f"sleep {self.pause_s:g}\n", f"until test -e {gate}; do sleep 0.05; done\n", 1)
        assert name and held != after, f"no {jobs!r} that waits"
        self.workflow.write_text(before + name + held)
        return gate

    def finals(self) -> dict[str, bytes]:
        """Path below the origin -> content."""
        mids = [f"{hashlib.sha256(self.content(n)).hexdigest()}  -\n".encode() + self.content(n) for n in range(self.count)]
        found = {f"out/{n}.txt": f"letter {n}\n".encode() + mids[n] for n in range(self.count)}
        found["all.txt"] = b"".join(mids[n] for n in sorted(range(self.count), key=str))
        return found

    def check(self, data: Path) -> None:
        """Every final is there with every byte right, and nothing else beside them."""
        for path, content in self.finals().items():
            there = (data / path).read_bytes()
            assert there == content, f"{path}: {len(there)} bytes, differs from what it must be"
        out = sorted(path.name for path in (data / "out").iterdir())
        assert out == sorted(f"{n}.txt" for n in range(self.count)), f"left beside the finals: {out}"

    def ended(self) -> dict[str, int]:
        """How often each job ran to its end."""
        counts: dict[str, int] = {}
        for line in self.trace.read_text().splitlines() if self.trace.exists() else []:
            if not line.startswith("begin"):
                counts[line] = counts.get(line, 0) + 1
        return counts
