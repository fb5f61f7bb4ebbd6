"""Settings: the only reader of the environment. Command-line options win over variables, variables over defaults.

One rule: everything else is told what it needs; nothing below reads the environment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from stager.model.errors import InvalidInput
from stager.model.units import parse_duration_s, parse_size_bytes

SHARE_OF_FREE = 0.8
IDLE_EXIT_S = 5.0
N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class Settings:
    """One state directory and what its scheduler may use of this machine."""

    state_dir: Path
    capacity_bytes: int
    cores: int
    memory_bytes: int | None = None
    idle_exit_s: float = IDLE_EXIT_S
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def scheduler_arguments(self) -> Sequence[str]:
        """For `python -m stager.service`, after `--state-dir`."""
        arguments = ["--capacity", str(self.capacity_bytes), "--cores", str(self.cores), "--idle-exit-s", f"{self.idle_exit_s:g}"]
        return arguments if self.memory_bytes is None else [*arguments, "--memory", str(self.memory_bytes)]


def read_settings(
    *, state_dir: Path | None = None, capacity_bytes: int | None = None, cores: int | None = None, memory_bytes: int | None = None, idle_exit_s: float | None = None
) -> Settings:
    """Raises InvalidInput on a variable that cannot be read."""
    environ = dict(os.environ)
    place = (state_dir or default_state_dir(environ)).absolute()
    capacity_bytes = capacity_bytes if capacity_bytes is not None else variable(environ, "STAGER_CAPACITY", parse_size_bytes)
    cores = cores if cores is not None else variable(environ, "STAGER_CORES", int)
    memory_bytes = memory_bytes if memory_bytes is not None else variable(environ, "STAGER_MEMORY", parse_size_bytes)
    idle_exit_s = idle_exit_s if idle_exit_s is not None else variable(environ, "STAGER_IDLE_EXIT", parse_duration_s)
    return Settings(
        place,
        capacity_bytes if capacity_bytes is not None else default_capacity(place),
        cores if cores is not None else len(os.sched_getaffinity(0)),
        memory_bytes,
        idle_exit_s if idle_exit_s is not None else IDLE_EXIT_S,
        environ,
    )


def variable(environ: Mapping[str, str], name: str, parse: Callable[[str], N]) -> N | None:
    if not environ.get(name):
        return None
    try:
        return parse(environ[name])
    except ValueError as problem:
        raise InvalidInput(f"the variable {name}: {problem}", subject=name) from None


def default_state_dir(environ: Mapping[str, str]) -> Path:
    if environ.get("STAGER_STATE_DIR"):
        return Path(environ["STAGER_STATE_DIR"])
    base = environ.get("XDG_STATE_HOME") or str(Path(environ.get("HOME", "/")) / ".local" / "state")
    return Path(base) / "stager"


def default_capacity(place: Path) -> int:
    """A share of what is free on its disk; what an earlier run keeps there counts as free."""
    while not place.exists():
        place = place.parent
    store = place / "store"
    kept = sum(entry.stat().st_size for entry in store.rglob("*") if entry.is_file()) if store.is_dir() else 0
    return int((shutil.disk_usage(place).free + kept) * SHARE_OF_FREE)
