"""The command line of a program whose subcommands are the steps of a workflow: `PROGRAM STEP FILE... --OTHERS FILE...`

May know: nothing of any step. One rule: a step is a function of paths, and its docstring is its help.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Step:
    """`files`: names of the function's arguments that are one file each, in order. `lists`: of those that are options with many."""

    call: Callable[..., None]
    files: Sequence[str]
    lists: Sequence[str] = ()


def run_step(description: str, steps: Mapping[str, Step]) -> None:
    """Calls the step that the command line names. Directories of its files are made first: a step may write any of them."""
    parser = argparse.ArgumentParser(description=description)
    commands = parser.add_subparsers(dest="step", required=True)
    for name, step in steps.items():
        command = commands.add_parser(name, help=step.call.__doc__)
        for argument in step.files:
            command.add_argument(argument, type=Path)
        for argument in step.lists:
            command.add_argument(f"--{argument}", type=Path, nargs="+", required=True)
    arguments = vars(parser.parse_args())
    step = steps[arguments.pop("step")]
    for name in step.files:
        arguments[name].parent.mkdir(parents=True, exist_ok=True)
    step.call(**arguments)
