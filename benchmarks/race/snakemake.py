"""Snakemake with its storage plugins, as a side of a race.

May know: Snakemake's own language and words. One rule: inputs and finals are in its storage, all else in its working directory, and what it
fetched it may keep, so that it has its best way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from benchmarks.race.sides import Side
from benchmarks.race.workflows import Task, directories, put
from tests.testbed.places import tool_cache

RAN = re.compile(r"Finished jobid: \d+ \(Rule: (?!all\))")


def program() -> Path:
    return tool_cache() / "snakemake" / "bin" / "snakemake"


class Snakemake(Side):
    name = "Snakemake"

    @staticmethod
    def missing() -> str:
        return "" if program().is_file() else "not installed: `scripts/setup.sh race` installs it"

    def prepare(self, tasks: Sequence[Task]) -> None:
        _, settings = self.lane.site.snakemake()
        lines = ["storage lab:", *(f"    {name}={value!r}," for name, value in settings.items()), "localrules: all"]
        lines += ["rule all:", "    input:", *(f"        {self.stored(final)}," for final in self.lane.race.finals)]
        for task in tasks:
            lines += self.rule(task)
        put(self.work / "Snakefile", "\n".join(lines) + "\n")
        paths = [path for task in tasks for path in (*task.inputs, *task.outputs)]
        for directory in directories(paths):
            (self.work / directory).mkdir(parents=True, exist_ok=True)

    def rule(self, task: Task) -> list[str]:
        """What is in its storage gets its own path by a link before the command, a final its place in the storage behind it."""
        stored = {path: f"{{input[{number}]}}" for number, path in enumerate(task.inputs) if self.is_stored(path)}
        finals = {path: f"{{output[{number}]}}" for number, path in enumerate(task.outputs) if self.is_stored(path)}
        steps = [f"rm -f {' '.join(finals)}"] if finals else []
        steps += [f"ln -sfn $PWD/{there} {path}" for path, there in stored.items()]
        steps += [task.command.replace("{", "{{").replace("}", "}}"), *(f"mv {path} {there}" for path, there in finals.items())]
        expressions = [
            [self.stored(path) if self.is_stored(path) else json.dumps(path) for path in paths] for paths in (task.inputs, task.outputs)
        ]
        lines = [f"rule {task.name}:"]
        for what, found in zip(("input", "output"), expressions, strict=True):
            lines += [f"    {what}:", *(f"        {each}," for each in found)]
        return [*lines, "    shell:", f"        {json.dumps(' && '.join(steps))}"]

    def is_stored(self, path: str) -> bool:
        return path in self.lane.race.external or path in self.lane.race.finals

    def stored(self, path: str) -> str:
        before, _ = self.lane.site.snakemake()
        where = self.lane.race.name if path in self.lane.race.external else self.lane.target
        return f"storage.lab({json.dumps(f'{before}{where}/{path}')})"

    def run(self) -> None:
        words = ["--cores", str(self.lane.cores), "--scheduler", "greedy", "--keep-storage-local-copies", "--nocolor"]
        self.said = self.call(program(), *words, env={"XDG_CACHE_HOME": str(self.home / "cache")})

    def ran(self) -> int:
        return len(RAN.findall(self.said))
