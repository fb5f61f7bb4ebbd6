"""Nextflow between two calls of rclone, as a side of a race.

May know: Nextflow's own language and words. One rule: it reads and writes this host alone. Its plugin for buckets is not among the packages
that can be installed here, and it has none for ssh servers.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.race.sides import MakeAndRclone
from benchmarks.race.workflows import Task, put
from tests.testbed.places import tool_cache

# As its own launcher starts it.
JAVA = ["java", "-XX:+TieredCompilation", "-XX:TieredStopAtLevel=1"]
OPENED = ("java.lang", "java.io", "java.nio", "java.net", "java.util", "java.util.concurrent.locks", "java.util.concurrent.atomic")
OPENED += ("sun.nio.ch", "sun.nio.fs", "jdk.internal.vm", "jdk.internal.misc")
SUBMITTED = "Submitted process > "


def jars() -> Path:
    return tool_cache() / "nextflow" / "lib"


class Nextflow(MakeAndRclone):
    name = "Nextflow and rclone"

    @staticmethod
    def missing() -> str:
        if not jars().is_dir() or shutil.which("java") is None:
            return "not installed: `scripts/setup.sh race` installs it"
        return MakeAndRclone.missing()

    def prepare(self, tasks: Sequence[Task]) -> None:
        finals = self.lane.race.finals
        put(self.work / "finals.list", "\n".join(finals) + "\n")
        config = ["process.cpus = 1", f"executor.cpus = {self.lane.cores}", "process.shell = ['/bin/bash', '-euo', 'pipefail']"]
        # By hard links, which keep the time of change by which rclone knows what is new.
        config.append("process.publishDir = [path: \"$launchDir\", mode: 'link', saveAs: { it in params.finals ? it : null }]")
        config.append(f"params.finals = [{', '.join(map(repr, finals))}]")
        put(self.work / "nextflow.config", "\n".join(config) + "\n")
        put(self.work / "main.nf", "\n".join([*map(process, tasks), *self.calls(tasks)]) + "\n")

    def calls(self, tasks: Sequence[Task]) -> list[str]:
        made: dict[str, str] = {}
        lines = ["workflow {"]
        for task in tasks:
            lines.append(f"    {task.name}({', '.join(made.get(path, f'file({path!r})') for path in task.inputs)})")
            made |= {path: f"{task.name}.out.o{number}" for number, path in enumerate(task.outputs)}
        return [*lines, "}"]

    def run(self) -> None:
        self.bring_in()
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in OPENED]
        words = ["nextflow.cli.Launcher", "run", "main.nf", "-resume", "-ansi-log", "false"]
        env = {"NXF_HOME": str(self.home / "nextflow"), "NXF_OFFLINE": "true", "NXF_DISABLE_CHECK_LATEST": "true"}
        self.said = self.call(*JAVA, *opened, "-cp", f"{jars()}/*", *words, env=env)
        self.bring_out()

    def ran(self) -> int:
        return self.said.count(SUBMITTED)


def process(task: Task) -> str:
    inputs = "\n".join(f"    path {path!r}" for path in task.inputs)
    outputs = "\n".join(f"    path {path!r}, emit: o{number}" for number, path in enumerate(task.outputs))
    return f"process {task.name} {{\n    input:\n{inputs}\n    output:\n{outputs}\n    script:\n    '''\n    {task.command}\n    '''\n}}"
